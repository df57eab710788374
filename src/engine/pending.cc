// SPDX-License-Identifier: Apache-2.0
#include "engine/pending.h"

#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "engine/engine_state.h"

namespace attnloom {

struct Pending::State {
  struct Kernel {
    bool settled = false;
    Status status;
    std::string request_key;            // of the landing
    std::shared_ptr<Landing> landing;   // null: not in the air
    std::shared_ptr<BuiltKernel> held;  // so that memory keeps it until somebody acquires it
  };

  std::shared_ptr<KernelSet> set;
  Priority priority = Priority::kRequest;
  Callback callback;

  mutable std::mutex mutex;
  mutable std::condition_variable changed;
  std::vector<Kernel> kernels;
  int unsettled = 0;
  std::optional<Status> result;
  bool callback_over = false;
  std::thread::id calling;  // while the callback runs
};

Pending::Pending() : state_(std::make_unique<State>()) {}
Pending::~Pending() = default;

std::shared_ptr<Pending> Pending::start(std::shared_ptr<KernelSet> kernels, Priority priority,
                                        Callback callback) {
  const std::shared_ptr<Pending> pending(new Pending);
  State& state = *pending->state_;
  const int size = kernels->size();
  state.set = std::move(kernels);
  state.priority = priority;
  state.callback = std::move(callback);
  state.kernels.resize(static_cast<std::size_t>(size));
  state.unsettled = size;
  for (int i = 0; i < size; ++i) pending->advance(i);
  return pending;
}

void Pending::advance(int index) {
  Result<KernelSet::Started> started = state_->set->start(index, state_->priority);
  if (!started.ok()) return settle(index, started.status());
  const std::shared_ptr<Landing> landing = started->landing;
  bool over = false;
  {
    const std::lock_guard lock(state_->mutex);
    State::Kernel& kernel = state_->kernels[index];
    kernel.held = std::move(started->held);
    kernel.request_key = started->request_key;
    over = state_->result.has_value();
    if (!over) kernel.landing = landing;
  }
  if (!landing) return settle(index, ok_status());
  // Cancelled between the start and now.
  if (over) return state_->set->engine().state().landings.let_go(started->request_key, landing);
  landing->when_landed(
      [self = shared_from_this(), index, landing] { self->landed(index, landing); });
}

void Pending::landed(int index, const std::shared_ptr<Landing>& landing) {
  const std::optional<Landing::Outcome> outcome = landing->outcome();
  if (!outcome->ok()) return settle(index, state_->set->with_user_lines(outcome->status()));
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->result) return;
    state_->kernels[index].landing.reset();
    state_->kernels[index].held = outcome->value();
  }
  // It may have spilled, and a smaller tile is then compiled in its place.
  advance(index);
}

void Pending::settle(int index, const Status& status) {
  Status first;
  {
    const std::lock_guard lock(state_->mutex);
    State::Kernel& kernel = state_->kernels[index];
    if (state_->result || std::exchange(kernel.settled, true)) return;
    kernel.status = status;
    kernel.landing.reset();
    if (--state_->unsettled > 0) return;
    for (const State::Kernel& one : state_->kernels)
      if (first.ok()) first = one.status;
  }
  finish(first);
}

void Pending::finish(const Status& status) {
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->result) return;
    state_->result = status;
    state_->calling = std::this_thread::get_id();
  }
  state_->changed.notify_all();
  if (state_->callback) state_->callback(status);
  const std::lock_guard lock(state_->mutex);
  state_->calling = {};
  state_->callback_over = true;
  state_->changed.notify_all();
}

std::optional<Status> Pending::wait(
    std::optional<std::chrono::steady_clock::time_point> until) const {
  std::unique_lock lock(state_->mutex);
  const auto over = [&] { return state_->result.has_value(); };
  if (until)
    state_->changed.wait_until(lock, *until, over);
  else
    state_->changed.wait(lock, over);
  return state_->result;
}

void Pending::cancel() {
  finish(make_error(Code::kCancelled, "", "the compiles were cancelled",
                    "call again where the kernels are wanted after all"));
  // What starts from now on is let go by advance().
  std::vector<State::Kernel> in_the_air;
  {
    const std::lock_guard lock(state_->mutex);
    for (State::Kernel& kernel : state_->kernels)
      if (kernel.landing)
        in_the_air.push_back(
            {.request_key = kernel.request_key, .landing = std::exchange(kernel.landing, nullptr)});
  }
  Landings& landings = state_->set->engine().state().landings;
  for (const State::Kernel& kernel : in_the_air)
    landings.let_go(kernel.request_key, kernel.landing);
}

void Pending::close() {
  cancel();
  std::unique_lock lock(state_->mutex);
  if (state_->calling == std::this_thread::get_id()) return;
  state_->changed.wait(lock, [&] { return state_->callback_over; });
}

}  // namespace attnloom
