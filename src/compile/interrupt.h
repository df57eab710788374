// SPDX-License-Identifier: Apache-2.0
// Interrupt: why a compile that is under way should stop. One party holds the button, the compiler
// asks now and then; a stop is soon, not now. Thread-safe, lock-free.
#pragma once

#include <atomic>
#include <chrono>
#include <limits>

#include "base/status.h"

namespace attnloom {

class Interrupt {
 public:
  void cancel() { cancelled_.store(true, std::memory_order_relaxed); }

  // The time allowed counts from here.
  void start_clock(std::chrono::milliseconds allowed) {
    deadline_ns_.store(now_ns() + std::chrono::nanoseconds(allowed).count(),
                       std::memory_order_relaxed);
  }

  // kOk while the compile may go on; kCancelled; kCompileTimeout.
  Code reason() const {
    if (cancelled_.load(std::memory_order_relaxed)) return Code::kCancelled;
    return now_ns() < deadline_ns_.load(std::memory_order_relaxed) ? Code::kOk
                                                                   : Code::kCompileTimeout;
  }

 private:
  static std::int64_t now_ns() {
    return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

  std::atomic<bool> cancelled_{false};
  std::atomic<std::int64_t> deadline_ns_{std::numeric_limits<std::int64_t>::max()};
};

}  // namespace attnloom
