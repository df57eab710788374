// SPDX-License-Identifier: Apache-2.0
// Landing: one compile that somebody asked for, in the air or landed. Landings: those of an engine,
// one a key, performed by its CompilePool.
//
// Thread-safe. A failure is not remembered: who asks after it has landed starts again.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/status.h"
#include "compile/interrupt.h"
#include "engine/compile_pool.h"

namespace attnloom {

struct BuiltKernel;

class Landing {
 public:
  using Clock = std::chrono::steady_clock;
  using Outcome = Result<std::shared_ptr<BuiltKernel>>;

  Landing();
  ~Landing();
  std::optional<Outcome> outcome() const;  // nullopt: in the air
  // Without `until` for as long as it takes; nullopt when the time passed first.
  std::optional<Outcome> wait(std::optional<Clock::time_point> until) const;
  // Called once: here and now where it has landed, else by the thread that lands it.
  void when_landed(std::function<void()> call);

 private:
  friend class Landings;
  void land(Outcome outcome);

  struct State;
  const std::unique_ptr<State> state_;
  Interrupt interrupt_;
  CompilePool::Ticket ticket_ = 0;  // the last two are guarded by Landings
  int wanted_ = 0;
};

class Landings {
 public:
  explicit Landings(std::function<int()> limit);  // of the pool
  ~Landings();

  // How a compile begins. `in_memory`: what somebody else has landed since the caller looked, or
  // null. `allowed`: an error forbids a compile that is not yet in the air. `work` runs on a thread
  // of the pool.
  struct Begin {
    Priority priority = Priority::kRequest;
    std::function<std::shared_ptr<BuiltKernel>()> in_memory;
    std::function<Status()> allowed;
    std::function<Landing::Outcome(Interrupt&)> work;
  };
  struct Started {
    std::shared_ptr<Landing> landing;
    bool ours = false;  // this call began it
  };
  // Joins the compile of `key` that is in the air, or begins one. CANCELLED after stop().
  Result<Started> start(const std::string& key, const Begin& begin);
  // One who started or joined has no more interest; after the last one the compile is stopped. A
  // waiter that merely ran out of time keeps its interest, so that the next call finds the result.
  void let_go(const std::string& key, const std::shared_ptr<Landing>& landing);
  // Everything in the air lands as CANCELLED, or as what it became; then nothing starts.
  void stop();

  CompilePool::Figures figures() const;

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace attnloom
