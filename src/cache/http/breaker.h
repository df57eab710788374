// SPDX-License-Identifier: Apache-2.0
// Breaker: pauses a server that fails, so that a dead one costs a few time-outs and not one a
// kernel. Thread-safe.
#pragma once

#include <chrono>
#include <functional>
#include <mutex>

namespace attnloom::http {

using Clock = std::function<std::chrono::steady_clock::time_point()>;

class Breaker {
 public:
  static constexpr int kFailures = 3;  // in a row
  static constexpr std::chrono::seconds kPause{60};

  // An empty `clock` is the steady clock.
  explicit Breaker(Clock clock = {});

  bool paused() const;
  void succeeded();
  // True when this failure begins a pause. After a pause the first failure begins the next one.
  bool failed();

 private:
  const Clock clock_;
  mutable std::mutex mutex_;
  int failures_ = 0;
  std::chrono::steady_clock::time_point until_{};
};

}  // namespace attnloom::http
