// SPDX-License-Identifier: Apache-2.0
// What a call does about a kernel that no cache layer holds. Values.
#pragma once

#include <chrono>

#include "engine/compile_pool.h"

namespace attnloom {

// Numbers are those of alm_policy.
enum class Policy : int {
  kDefault = 0,   // the engine's own
  kBlock = 1,     // compile, and wait for it
  kAsync = 2,     // have it compiled; COMPILE_TIMEOUT until it is there
  kFallback = 3,  // have it compiled; plans use a kernel of the set that is there, or else wait
  kNever = 4,     // NOT_CACHED
};

struct AcquireOptions {
  Policy policy = Policy::kDefault;
  // How long kBlock, and kFallback without another kernel, wait before COMPILE_TIMEOUT; the compile
  // goes on. 0: as long as it takes.
  std::chrono::milliseconds timeout{0};
  Priority priority = Priority::kRequest;
};

// Numbers are those of alm_freeze.
enum class Freeze : int { kNone = 0, kWarn = 1, kFail = 2 };

}  // namespace attnloom
