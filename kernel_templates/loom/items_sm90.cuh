// SPDX-License-Identifier: Apache-2.0
// What is next in attention_wgmma: one warp fetches items of the queue ahead, and where a variant
// skips tiles it asks for all which are taken. All others walk an item's tiles by TileWalk.
#pragma once

#include "loom/queue.cuh"
#include "loom/ring_sm90.cuh"

namespace loom {

// The tiles that one warp takes and others walk. One evaluation of tile_mask serves all: two might
// round its floats in two ways, and warps that walk different tiles wait for ever.
template <class Config, class Class>
struct TileQueue {
  using Ring = MappedRing<Config, Class>;
  Ring ring;
  typename Ring::TilePlace place;

  // Both by a whole warp.
  LOOM_DEVICE void push(const NextTile& tile) {
    barrier_wait(ring.tile_free(place.stage()), place.parity() ^ 1);
    if (lane_index() == 0) {
      ring.tile(place.stage()) = tile;
      barrier_arrive(ring.tile_full(place.stage()));
    }
    place.advance();
  }
  LOOM_DEVICE NextTile pop() {
    barrier_wait(ring.tile_full(place.stage()), place.parity());
    const NextTile tile = ring.tile(place.stage());
    __syncwarp();
    if (lane_index() == 0) barrier_arrive(ring.tile_free(place.stage()));
    place.advance();
    return tile;
  }
};

// The tiles of an item, from the last to the first: of causal rows those that are cut come first.
// At least one: of an item without keys one that no row sees.
template <class Config, class Class>
struct TileWalk {
  using Tiles = TileQueue<Config, Class>;
  int position;  // of the tile
  int left;      // tiles from this one on; where tiles are skipped, whether this is one
  TileMask mask = TileMask::kPartial;

  LOOM_DEVICE TileWalk(const KvBounds& bounds, Tiles& tiles) {
    if constexpr (kSkipsTiles<Config>) {
      take(tiles);
    } else {
      const int end = max(bounds.end, bounds.begin + 1);
      left = (end - bounds.begin + Class::kKv - 1) / Class::kKv;
      position = bounds.begin + (left - 1) * Class::kKv;
    }
  }
  LOOM_DEVICE void advance(Tiles& tiles) {
    if constexpr (kSkipsTiles<Config>) {
      take(tiles);
    } else {
      position -= Class::kKv;
      --left;
    }
  }

 private:
  LOOM_DEVICE void take(Tiles& tiles) {
    const NextTile next = tiles.pop();
    position = next.position;
    mask = next.mask;
    left = position != kNoKey ? 1 : 0;
  }
};

// An item as a warpgroup multiplies it.
template <class Config, class Class>
struct OpenItem {
  const Kept* kept;
  KvBounds bounds;
  TileWalk<Config, Class> walk;
  float factor;  // of logits

  // Whether some row does not see some key of the tile.
  LOOM_DEVICE bool is_cut() const {
    return walk.position + Class::kKv > bounds.full_end ||
           (Config::kWindow && walk.position < bounds.full_begin);
  }
};

// Asks about 32 tiles at a time, one a lane. Of an item whose tiles are all skipped one is taken
// that lies behind its keys.
template <class Config, class Class, class Variant>
LOOM_DEVICE void take_tiles(TileQueue<Config, Class>& tiles, const AttentionArgs& args,
                            const PlanHeader& plan, const Kept& kept) {
  const Variant variant(plan, args);
  const KvBounds bounds = kv_bounds<Config, Class>(plan, kept.request, kept.work);
  const int count = (max(bounds.end - bounds.begin, 0) + Class::kKv - 1) / Class::kKv;
  bool skips_all = true;
#pragma unroll 1
  for (int last = count - 1; last >= 0; last -= 32) {
    const int position = bounds.begin + (last - lane_index()) * Class::kKv;
    TileMask mask = TileMask::kSkip;
    if (position >= bounds.begin) {
      mask = tile_mask_of<Config, Class>(variant, kept.request, kept.work,
                                         KvColumns<Config>{args, kept.request, nullptr, position},
                                         bounds.end);
    }
#pragma unroll 1
    for (u32 taken = __ballot_sync(~0u, mask != TileMask::kSkip); taken != 0; taken &= taken - 1) {
      const int lane = __ffs(static_cast<int>(taken)) - 1;
      tiles.push({bounds.begin + (last - lane) * Class::kKv,
                  static_cast<TileMask>(__shfl_sync(~0u, static_cast<int>(mask), lane))});
      skips_all = false;
    }
  }
  if (skips_all) tiles.push({bounds.begin + count * Class::kKv, TileMask::kPartial});
  tiles.push({kNoKey, TileMask::kPartial});
}

// take_item() by a warp: a lane holds 16 bytes, of the few registers that there are.
template <class Config>
LOOM_DEVICE void fetch_item(Kept& kept, const AttentionArgs& args, const PlanHeader& plan,
                            int queue_lane, int index) {
  const int lane = lane_index();
  uint4* words = reinterpret_cast<uint4*>(&kept.work.item);
  if (lane < 2) {
    uint4 part = plan_table<uint4>(args, plan.items_offset)[2 * index + lane];
    if (lane == 0) part.z += queue_lane;  // kv_head
    if (lane == 1) part.w += queue_lane;  // merge
    words[lane] = part;
  }
  __syncwarp();
  constexpr int kParts = Config::kBsr || Config::kCustomMask || Config::kShares ? 3 : 2;
  const int request = kept.work.item.request;
  if (lane < kParts) {
    reinterpret_cast<uint4*>(&kept.request)[lane] =
        plan_table<uint4>(args, plan.requests_offset)[3 * request + lane];
  }
  if (lane == 0) kept.work.lane = queue_lane;
  __syncwarp();
}

// One warp: an item's words come from memory, and behind them those of the request that it names.
// Nobody else should wait for either.
template <class Config, class Class, class Variant>
LOOM_DEVICE void fetch_queue(const MappedRing<Config, Class>& ring, const AttentionArgs& args,
                             const PlanHeader& plan, const CtaQueue& queue) {
  typename MappedRing<Config, Class>::KeptPlace place;
  TileQueue<Config, Class> tiles{ring, {}};
#pragma unroll 1
  for (int i = queue.begin; i < queue.end; ++i) {
    barrier_wait(ring.kept_free(place.stage()), place.parity() ^ 1);
    fetch_item<Config>(ring.kept(place.stage()), args, plan, queue.lane, i);
    if (lane_index() == 0) barrier_arrive(ring.kept_full(place.stage()));
    if constexpr (kSkipsTiles<Config>)
      take_tiles<Config, Class, Variant>(tiles, args, plan, ring.kept(place.stage()));
    place.advance();
  }
}

}  // namespace loom
