// SPDX-License-Identifier: Apache-2.0
// Pending: the kernels of a set on their way into memory and cache, compiled behind the caller's
// back. Nothing is loaded: a load could break a capture that another thread runs, so whoever
// acquires a kernel afterwards loads it.
//
// Thread-safe. Held by the compiles that it waits for, so it may be let go at any time; the set
// lives as long.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>

#include "base/status.h"
#include "engine/kernel_set.h"

namespace attnloom {

class Pending : public std::enable_shared_from_this<Pending> {
 public:
  // Called exactly once, by a thread of the engine, by cancel() or within start(): all kernels are
  // there, or the error of the first that is not, or CANCELLED. May call anything but close() of
  // another thread's wait.
  using Callback = std::function<void(const Status&)>;

  // `callback` may be empty.
  static std::shared_ptr<Pending> start(std::shared_ptr<KernelSet> kernels, Priority priority,
                                        Callback callback);
  ~Pending();

  // What the callback was or will be told; nullopt when the time passed first.
  std::optional<Status> wait(std::optional<std::chrono::steady_clock::time_point> until) const;
  // Ends as CANCELLED unless it is over. Compiles that nobody else wants are stopped.
  void cancel();
  // cancel(), and returns when the callback is over, unless the callback itself is calling.
  void close();

 private:
  struct State;
  Pending();
  void advance(int index);
  void landed(int index, const std::shared_ptr<Landing>& landing);
  void settle(int index, const Status& status);
  void finish(const Status& status);

  const std::unique_ptr<State> state_;
};

}  // namespace attnloom
