// SPDX-License-Identifier: Apache-2.0
// Division of counts. Pure.
#pragma once

#include <cstdint>

namespace attnloom {

// REQUIRES: value >= 0, by > 0.
inline std::int64_t divide_up(std::int64_t value, std::int64_t by) {
  return (value + by - 1) / by;
}

}  // namespace attnloom
