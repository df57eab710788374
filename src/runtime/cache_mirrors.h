// SPDX-License-Identifier: Apache-2.0
// Checks of index arrays whose values are known on the host. Pure; thread-safe; allocates.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.h"
#include "runtime/cache_launch.h"

namespace attnloom {

// What the device's arrays hold and index.
struct AppendBounds {
  std::int64_t tokens = 0;
  std::int64_t batch = 0;
  std::int64_t page_index_count = 0;
  std::int64_t pool_pages = 0;
  int page_size = 0;
};

// Every mirror that is given, alone and against the others as far as those are given.
Status check_append_mirrors(const AppendMirrors& mirrors, const AppendBounds& bounds);

Status check_page_pairs(std::span<const std::int32_t> pairs, std::int64_t count,
                        std::int64_t pool_pages);

}  // namespace attnloom
