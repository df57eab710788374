// SPDX-License-Identifier: Apache-2.0
#include "engine/compile_pool.h"

#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <list>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace attnloom {

struct CompilePool::State {
  using Place = std::pair<Priority, Ticket>;  // in the queue
  struct Worker {
    std::thread thread;
    bool over = false;  // guarded by mutex; the thread takes it no more
  };

  void work(Worker& self);
  bool start_worker();
  void join_workers_that_are_over();

  std::function<int()> limit;
  mutable std::mutex mutex;
  std::condition_variable worker_over;
  std::map<Place, std::function<void()>> waiting;
  // A list, because a worker keeps its own address.
  std::unique_ptr<std::list<Worker>> workers = std::make_unique<std::list<Worker>>();
  int running = 0;
  Ticket last_ticket = 0;
  bool stopped = false;
  pid_t owner = ::getpid();
};

CompilePool::CompilePool(std::function<int()> limit) : state_(std::make_unique<State>()) {
  state_->limit = std::move(limit);
}

CompilePool::~CompilePool() {
  stop();
}

void CompilePool::State::work(Worker& self) {
  std::unique_lock lock(mutex);
  while (!waiting.empty()) {
    auto next = waiting.extract(waiting.begin());
    lock.unlock();
    next.mapped()();
    next = {};  // what the job holds is let go before we are seen to be idle
    lock.lock();
  }
  --running;
  self.over = true;
  worker_over.notify_all();
}

void CompilePool::State::join_workers_that_are_over() {
  for (auto worker = workers->begin(); worker != workers->end();) {
    if (!worker->over) {
      ++worker;
      continue;
    }
    worker->thread.join();  // at once: it has left the mutex
    worker = workers->erase(worker);
  }
}

bool CompilePool::State::start_worker() {
  Worker& worker = workers->emplace_back();
  ++running;
  try {
    worker.thread = std::thread([this, &worker] { work(worker); });
  } catch (const std::system_error&) {
    --running;
    workers->pop_back();
    return false;
  }
  return true;
}

CompilePool::Ticket CompilePool::submit(Priority priority, std::function<void()> job) {
  State& state = *state_;
  const std::lock_guard lock(state.mutex);
  if (state.stopped) return 0;
  const Ticket ticket = ++state.last_ticket;
  const State::Place place{priority, ticket};
  state.waiting.emplace(place, std::move(job));
  state.join_workers_that_are_over();
  if (state.running > 0 && state.running >= state.limit()) return ticket;
  if (state.start_worker() || state.running > 0) return ticket;
  state.waiting.erase(place);
  return 0;
}

bool CompilePool::withdraw(Ticket ticket) {
  State& state = *state_;
  std::function<void()> dropped;  // ends outside the lock: it may own anything
  const std::lock_guard lock(state.mutex);
  for (const Priority priority : {Priority::kRequest, Priority::kPrewarm}) {
    const auto found = state.waiting.find({priority, ticket});
    if (found == state.waiting.end()) continue;
    dropped = std::move(found->second);
    state.waiting.erase(found);
    return true;
  }
  return false;
}

void CompilePool::hasten(Ticket ticket) {
  State& state = *state_;
  const std::lock_guard lock(state.mutex);
  auto found = state.waiting.extract({Priority::kPrewarm, ticket});
  if (found.empty()) return;
  found.key().first = Priority::kRequest;
  state.waiting.insert(std::move(found));
}

void CompilePool::stop() {
  abandon_after_fork();
  State& state = *state_;
  std::map<State::Place, std::function<void()>> dropped;
  std::unique_lock lock(state.mutex);
  state.stopped = true;
  std::swap(dropped, state.waiting);
  state.worker_over.wait(lock, [&] { return state.running == 0; });
  state.join_workers_that_are_over();
}

bool CompilePool::abandon_after_fork() {
  State& state = *state_;
  const std::lock_guard lock(state.mutex);
  if (state.owner == ::getpid()) return false;
  state.owner = ::getpid();
  state.running = 0;
  state.waiting.clear();
  // Handles of threads that this process does not have can be neither joined nor let go.
  [[maybe_unused]] const auto* leaked = state.workers.release();
  state.workers = std::make_unique<std::list<State::Worker>>();
  return true;
}

CompilePool::Figures CompilePool::figures() const {
  const std::lock_guard lock(state_->mutex);
  return {static_cast<int>(state_->waiting.size()), state_->running};
}

}  // namespace attnloom
