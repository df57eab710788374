// SPDX-License-Identifier: Apache-2.0
// How many compiles this process may run at a time: by cores and by the memory that is free now.
// Thread-safe.
#pragma once

#include <cstdint>
#include <string>

namespace attnloom {

inline constexpr int kMostCompiles = 8;
// One compile touches about 100 MB, and 40 MB more for each that runs beside it; the rest is for
// the host's own needs meanwhile.
inline constexpr std::uint64_t kBytesPerCompile = std::uint64_t{256} << 20;

// The cores that the scheduler gives us, the quota and the memory of the control groups around us,
// the machine's free memory: the least of them, from 1 to kMostCompiles. `root` stands before /proc
// and /sys, for tests. What cannot be read sets no limit.
int compile_limit(const std::string& root = "");

}  // namespace attnloom
