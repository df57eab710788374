// SPDX-License-Identifier: Apache-2.0
// What both schedules cut: one query tile, the same on every KV head, and the keys that its rows
// can see at all. Values.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernel_templates/loom/plan.cuh"

namespace attnloom {

struct QueryTile {
  int request = 0;  // entry of the request table
  int q_row = 0;    // packed
  int tile_class = 0;
  std::int64_t kv_begin = 0;    // keys before it belong to shared prefixes
  std::int64_t kv_len = 0;      // the end of its keys
  bool shares = false;          // its states are merged with others' (shared_merges.h)
  std::int64_t live_begin = 0;  // a multiple of the class's KV tile
  std::int64_t live_end = 0;
  std::int64_t least_chunk = 0;  // tokens; a multiple of the class's KV tile
};

// Tokens of [begin, end) that some row of the tile sees.
inline std::int64_t live_tokens(const QueryTile& tile, std::int64_t begin, std::int64_t end) {
  return std::max<std::int64_t>(0, std::min(end, tile.live_end) - std::max(begin, tile.live_begin));
}

// The tile against [begin, end), as if nobody shared it. `kv_head`: of lane 0.
inline loom::WorkItem work_item(const QueryTile& tile, int kv_head, std::int64_t begin,
                                std::int64_t end) {
  return {.request = tile.request,
          .q_row = tile.q_row,
          .kv_head = kv_head,
          .kv_begin = static_cast<int>(begin),
          .kv_end = static_cast<int>(end),
          .tile_class = tile.tile_class,
          .partial_row = -1,
          .merge = -1};
}

}  // namespace attnloom
