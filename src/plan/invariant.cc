// SPDX-License-Identifier: Apache-2.0
#include "plan/invariant.h"

#include <algorithm>

#include "base/divide_up.h"

namespace attnloom {
namespace {

// A chunk's partial state is 1.6 % of its bytes of keys (decode of 4 query heads a group, bf16,
// head dim 128), whatever the batch: a plan of this kind cannot know when splitting pays.
constexpr std::int64_t kLeastTokens = 512;

}  // namespace

int invariant_kernel(std::span<const KernelChoice> set) {
  const std::span<const KernelChoice> kernels = warp_kernels(set);
  int widest = 0;
  for (int k = 0; k < static_cast<int>(kernels.size()); ++k) {
    if (kernels[k].classes.size() > 1) return k;
    if (kernels[k].classes[0].q < kLongQueryTile) widest = k;
  }
  return widest;
}

std::int64_t invariant_chunk(const TileClass& tile, std::int64_t packed_rows, std::int64_t kv_len) {
  const std::int64_t tiles = std::max<std::int64_t>(divide_up(packed_rows, tile.q), 1);
  const std::int64_t chunks = std::max<std::int64_t>(kInvariantItems / tiles, 1);
  const std::int64_t tokens = std::max(divide_up(kv_len, chunks), kLeastTokens);
  return divide_up(tokens, tile.kv) * tile.kv;
}

// An entry that is split has n tiles of at most floor(S / n) chunks, S = kInvariantItems: at most S
// items, all with a partial state, and n <= S / 2 merges. A tile is of the smallest class unless
// its entry has too many rows for it, and only so many entries of a batch can.
InvariantBounds invariant_bounds(const Spec& spec, const KernelChoice& kernel, int kv_heads,
                                 std::int64_t max_qo_tokens, std::int64_t query_tiles,
                                 std::int64_t entries) {
  const std::int64_t least_rows = kernel.classes.front().q;
  const std::int64_t most_rows = kernel.classes.back().q;
  const std::int64_t tokens_of_large = least_rows / spec.group_size + 1;
  const std::int64_t large = std::min(entries, max_qo_tokens / tokens_of_large);
  InvariantBounds bounds;
  bounds.items = kv_heads * (query_tiles + entries * (kInvariantItems - 1));
  bounds.merges = kv_heads * std::min(query_tiles, entries * (kInvariantItems / 2));
  bounds.partial_rows =
      kv_heads * kInvariantItems * (large * most_rows + (entries - large) * least_rows);
  return bounds;
}

}  // namespace attnloom
