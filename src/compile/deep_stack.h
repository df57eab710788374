// SPDX-License-Identifier: Apache-2.0
// Runs a call on a thread of its own with a stack for deep recursion, and waits for it. NVRTC
// recurses along a program's expressions inside the host's process: on the caller's stack, of which
// we know nothing, a long functor would end that process. Thread-safe.
#pragma once

#include <cstddef>
#include <functional>

#include "base/status.h"

namespace attnloom {

// Address space; memory only where it is touched. The deepest text found of 64 KB, `x=x=x=...`,
// overflows 64 MiB.
inline constexpr std::size_t kDeepStackBytes = std::size_t{256} << 20;

// Throws what `call` throws. Not ok, OUT_OF_MEMORY, if the thread cannot be started; `call` has not
// run then.
Status run_on_deep_stack(const std::function<void()>& call);

}  // namespace attnloom
