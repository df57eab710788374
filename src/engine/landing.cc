// SPDX-License-Identifier: Apache-2.0
#include "engine/landing.h"

#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

namespace attnloom {

struct Landing::State {
  mutable std::mutex mutex;
  mutable std::condition_variable landed;
  std::optional<Outcome> outcome;
  std::vector<std::function<void()>> calls;
};

Landing::Landing() : state_(std::make_unique<State>()) {}
Landing::~Landing() = default;

std::optional<Landing::Outcome> Landing::outcome() const {
  const std::lock_guard lock(state_->mutex);
  return state_->outcome;
}

std::optional<Landing::Outcome> Landing::wait(std::optional<Clock::time_point> until) const {
  std::unique_lock lock(state_->mutex);
  const auto landed = [&] { return state_->outcome.has_value(); };
  if (until)
    state_->landed.wait_until(lock, *until, landed);
  else
    state_->landed.wait(lock, landed);
  return state_->outcome;
}

void Landing::when_landed(std::function<void()> call) {
  {
    const std::lock_guard lock(state_->mutex);
    if (!state_->outcome) {
      state_->calls.push_back(std::move(call));
      return;
    }
  }
  call();
}

void Landing::land(Outcome outcome) {
  std::vector<std::function<void()>> calls;
  {
    const std::lock_guard lock(state_->mutex);
    state_->outcome = std::move(outcome);
    calls.swap(state_->calls);
  }
  state_->landed.notify_all();
  for (const std::function<void()>& call : calls) call();
}

struct Landings::State {
  explicit State(std::function<int()> limit) : pool(std::move(limit)) {}

  mutable std::mutex mutex;
  std::map<std::string, std::shared_ptr<Landing>> in_the_air;
  bool stopped = false;
  CompilePool pool;  // last: its threads use the above
};

namespace {

Status cancelled() {
  return make_error(Code::kCancelled, "", "the compile was cancelled");
}

// An exception (no memory) must land the waiters too, so it becomes an error here.
Landing::Outcome guarded_work(const std::function<Landing::Outcome(Interrupt&)>& work,
                              Interrupt& interrupt) {
  try {
    return work(interrupt);
  } catch (const std::bad_alloc&) {
    return make_error(Code::kOutOfMemory, "", "no memory is left for the compile");
  } catch (const std::exception& error) {
    return make_error(Code::kInternal, "", error.what());
  }
}

}  // namespace

Landings::Landings(std::function<int()> limit)
    : state_(std::make_unique<State>(std::move(limit))) {}
Landings::~Landings() {
  stop();
}

Result<Landings::Started> Landings::start(const std::string& key, const Begin& begin) {
  State& state = *state_;
  const std::lock_guard lock(state.mutex);
  // What the parent had in the air lands in the parent.
  if (state.pool.abandon_after_fork()) state.in_the_air.clear();
  if (state.stopped) return cancelled();
  if (const auto found = state.in_the_air.find(key); found != state.in_the_air.end()) {
    ++found->second->wanted_;
    if (begin.priority == Priority::kRequest) state.pool.hasten(found->second->ticket_);
    return Started{found->second, false};
  }
  auto landing = std::make_shared<Landing>();
  if (std::shared_ptr<BuiltKernel> built = begin.in_memory()) {
    landing->land(std::move(built));
    return Started{std::move(landing), false};
  }
  ATTNLOOM_CHECK(begin.allowed());
  landing->wanted_ = 1;
  landing->ticket_ = state.pool.submit(begin.priority, [&state, key, landing, work = begin.work] {
    Landing::Outcome outcome = guarded_work(work, landing->interrupt_);
    {
      const std::lock_guard relock(state.mutex);
      const auto found = state.in_the_air.find(key);
      if (found != state.in_the_air.end() && found->second == landing)
        state.in_the_air.erase(found);
    }
    landing->land(std::move(outcome));
  });
  if (landing->ticket_ == 0)
    return make_error(Code::kOutOfMemory, "", "no thread can be started for the compile",
                      "raise the limit on threads (ulimit -u)");
  state.in_the_air.emplace(key, landing);
  return Started{std::move(landing), true};
}

void Landings::let_go(const std::string& key, const std::shared_ptr<Landing>& landing) {
  State& state = *state_;
  {
    const std::lock_guard lock(state.mutex);
    const auto found = state.in_the_air.find(key);
    if (found == state.in_the_air.end() || found->second != landing || --landing->wanted_ > 0)
      return;
    // Whoever asks from now on begins anew instead of joining what is being stopped.
    state.in_the_air.erase(found);
    landing->interrupt_.cancel();
    if (!state.pool.withdraw(landing->ticket_)) return;
  }
  landing->land(cancelled());
}

void Landings::stop() {
  State& state = *state_;
  std::map<std::string, std::shared_ptr<Landing>> in_the_air;
  {
    const std::lock_guard lock(state.mutex);
    if (state.pool.abandon_after_fork()) state.in_the_air.clear();
    state.stopped = true;
    in_the_air.swap(state.in_the_air);
    for (const auto& [key, landing] : in_the_air) landing->interrupt_.cancel();
  }
  for (const auto& [key, landing] : in_the_air)
    if (state.pool.withdraw(landing->ticket_)) landing->land(cancelled());
  state.pool.stop();
}

CompilePool::Figures Landings::figures() const {
  return state_->pool.figures();
}

}  // namespace attnloom
