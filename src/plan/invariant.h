// SPDX-License-Identifier: Apache-2.0
// Batch-invariant plans: what computes a request depends on its own lengths only, so its results
// have the same bits alone and in any batch, under any limits and on any number of CTAs. Pure;
// thread-safe.
#pragma once

#include <cstdint>
#include <span>

#include "spec/spec.h"
#include "spec/tiles.h"

namespace attnloom {

// One head of an entry becomes at most this many items, tiles times chunks, where it is split at
// all: what bounds the partial states when the CTAs do not.
inline constexpr int kInvariantItems = 16;

// The kernel of the set that serves every batch: another one for some batches would be other tiles.
// The joint kernel, or without one that of the largest query tile that takes part in batches of any
// lengths.
int invariant_kernel(std::span<const KernelChoice> set);

// Tokens of a chunk of an entry of `packed_rows` query rows and `kv_len` keys; a multiple of the KV
// tile.
std::int64_t invariant_chunk(const TileClass& tile, std::int64_t packed_rows, std::int64_t kv_len);

// How much a batch within the limits can need, over all KV heads.
struct InvariantBounds {
  std::int64_t items = 0;
  std::int64_t merges = 0;
  std::int64_t partial_rows = 0;
};
// `query_tiles`: the most of one KV head. `entries`: the most with query tokens.
InvariantBounds invariant_bounds(const Spec& spec, const KernelChoice& kernel, int kv_heads,
                                 std::int64_t max_qo_tokens, std::int64_t query_tiles,
                                 std::int64_t entries);

}  // namespace attnloom
