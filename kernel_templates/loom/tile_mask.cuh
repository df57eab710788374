// SPDX-License-Identifier: Apache-2.0
// Tiles of keys that need no product, or no question about each pair: by the variant's tile_mask,
// and where keys are listed blocks by causality and the window.
#pragma once

#include "loom/variant.cuh"

namespace loom {

// Of consecutive keys a tile's range is known before it is copied: a skipped one is not even read.
template <class Config>
constexpr bool kSkipsTiles = Config::kHasTileMask && !Config::kBsr;

// Of listed blocks it is known when they have landed, and kv_bounds() cuts nothing off.
template <class Config>
constexpr bool kSkipsBlocks = Config::kBsr &&
                              (Config::kHasTileMask || Config::kCausal || Config::kWindow);

// Positions [begin, end) of rows or keys.
struct Positions {
  int begin;
  int end;
};

// Of the rows of a query tile that exist.
template <class Config, class Class>
LOOM_DEVICE Positions query_positions(const RequestRow& request, const Work& work) {
  const int shift = query_shift(request);
  const int last = min((work.item.q_row + Class::kQ - 1) / Config::kGroupSize, request.q_end - 1);
  return {work.item.q_row / Config::kGroupSize + shift, last + 1 + shift};
}

// Of a tile's keys that exist; empty where none does. Listed blocks may stand in any order, so each
// warp looks at all of them.
template <class Config, class Class>
LOOM_DEVICE Positions key_positions(const KvColumns<Config>& columns, int kv_end) {
  if constexpr (!Config::kBsr) return {columns.begin, min(columns.begin + Class::kKv, kv_end)};
  int least = kNoKey;
  int most = -1;
#pragma unroll
  for (int i = 0; i < Class::kKv; i += 32) {
    // A tile of 16 keys is looked at twice over, never past its end: the next stage is in flight.
    const int position = columns.position((i + lane_index()) % Class::kKv);
    least = min(least, position);
    if (position != kNoKey) most = max(most, position);
  }
  return {__reduce_min_sync(~0u, least), __reduce_max_sync(~0u, most) + 1};
}

// What the variant says of a tile. Heads are always the whole group: a packed tile of few tokens
// may hold fewer, and what is true of all is true of them.
template <class Config, class Class, class Variant>
LOOM_DEVICE TileMask tile_mask_of(const Variant& variant, const RequestRow& request,
                                  const Work& work, const KvColumns<Config>& columns, int kv_end) {
  if constexpr (Config::kHasTileMask) {
    const Positions queries = query_positions<Config, Class>(request, work);
    const Positions keys = key_positions<Config, Class>(columns, kv_end);
    return variant.tile_mask(request.batch, queries.begin, queries.end, keys.begin, keys.end,
                             work.kv_head() * Config::kGroupSize,
                             (work.kv_head() + 1) * Config::kGroupSize, work.kv_head(),
                             request.qo_len, request.kv_len);
  } else {
    return TileMask::kPartial;
  }
}

// Whether no row of the item sees any key of a tile of listed blocks. REQUIRES: it has landed.
template <class Config, class Class, class Variant>
LOOM_DEVICE bool is_dead(const PlanHeader& plan, const Variant& variant, const RequestRow& request,
                         const Work& work, const KvColumns<Config>& columns, int kv_end) {
  const Positions queries = query_positions<Config, Class>(request, work);
  const Positions keys = key_positions<Config, Class>(columns, kv_end);
  if (keys.begin >= keys.end || (Config::kCausal && keys.begin >= queries.end)) return true;
  const int left = window_left<Config>(plan);
  if (Config::kWindow && left >= 0 && keys.end <= queries.begin - left) return true;
  return tile_mask_of<Config, Class>(variant, request, work, columns, kv_end) == TileMask::kSkip;
}

}  // namespace loom
