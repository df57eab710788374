// SPDX-License-Identifier: Apache-2.0
#include "cache/http/breaker.h"

#include <utility>

namespace attnloom::http {

Breaker::Breaker(Clock clock)
    : clock_(clock ? std::move(clock) : Clock(std::chrono::steady_clock::now)) {}

bool Breaker::paused() const {
  const std::scoped_lock lock(mutex_);
  return failures_ >= kFailures && clock_() < until_;
}

void Breaker::succeeded() {
  const std::scoped_lock lock(mutex_);
  failures_ = 0;
}

bool Breaker::failed() {
  const std::scoped_lock lock(mutex_);
  if (++failures_ < kFailures) return false;
  const bool began = clock_() >= until_;  // several threads may fail at once
  until_ = clock_() + kPause;
  return began;
}

}  // namespace attnloom::http
