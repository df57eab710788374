// SPDX-License-Identifier: Apache-2.0
// The copies of attention_wgmma: one warp copies queries, keys and values of an item by tensor map
// into the stages of loom/ring_sm90.cuh, in the order in which they are multiplied.
#pragma once

#include "loom/items_sm90.cuh"

namespace loom {

// The copying warp. Lanes share the boxes of a tile: one of all its rows, or one a page.
template <class Config, class Class>
struct MappedCopies {
  using Ring = MappedRing<Config, Class>;
  using Walk = TileWalk<Config, Class>;
  static constexpr bool kSmallPages = Config::kPaged && Config::kPageSize < Class::kKv;
  static constexpr int kBoxRows = kSmallPages ? Config::kPageSize : Class::kKv;
  static constexpr int kBoxes = Class::kKv / kBoxRows;

  // Where this lane's box of a tile stands.
  struct Box {
    int row;
    int page;
  };

  const MappedAttentionArgs& args;
  const PlanHeader& plan;
  Ring ring;
  typename Ring::QueryPlace queries;
  typename Ring::Place keys;
  typename Ring::Place values;
  TileQueue<Config, Class> tiles;
  u32 tails = 0;  // parity of tail_landed

  LOOM_DEVICE Box box(const Kept& kept, int position) const {
    const RequestRow& request = kept.request;
    if constexpr (Config::kPaged) {
      const int token = position + lane_index() * kBoxRows;
      const int last = kept.work.item.kv_end - 1;  // behind it the table may end
      if (last < position) return {0, 0};          // no key: any page
      const int entry = request.kv_begin + min(token, last) / Config::kPageSize;
      return {token % Config::kPageSize, args.attention.page_indices[entry]};
    }
    return {request.kv_begin + position, Config::kPadded ? request.batch : 0};
  }

  template <class Tile>
  LOOM_DEVICE void copy(const Tile& tile, const MapBytes& map, u32 landed, const Box& box,
                        int kv_head) const {
    const int lane = lane_index();
    if (lane == 0) barrier_expect(landed, Tile::kBytes);
    if (lane >= kBoxes) return;
#pragma unroll
    for (int slab = 0; slab < Tile::kSlabs; ++slab) {
      copy_tile(tile.base + slab * Tile::kSlabBytes + lane * kBoxRows * 128, &map, landed,
                64 * slab, box.row, kv_head, box.page);
    }
  }

  LOOM_DEVICE void copy_keys(const Kept& kept, const Box& box) {
    barrier_wait(ring.keys_free(keys.stage()), keys.parity() ^ 1);
    copy(ring.keys(keys.stage()), args.k, ring.keys_landed(keys.stage()), box, kept.work.kv_head());
    keys.advance();
  }

  // `rows`: of the tile that hold keys of the walk.
  LOOM_DEVICE void copy_values(const Kept& kept, const Box& box, int rows) {
    barrier_wait(ring.values_free(values.stage()), values.parity() ^ 1);
    const u32 landed = ring.values_landed(values.stage());
    const bool whole = rows >= Class::kKv;
    copy(ring.values(values.stage()), args.v, whole ? landed : ring.tail_landed(), box,
         kept.work.kv_head());
    if (!whole) {
      clear_tail(rows);
      if (lane_index() == 0) barrier_arrive(landed);
    }
    values.advance();
  }

  // What lies behind the last key belongs to another request or to nobody: a weight of zero times a
  // NaN there would be one.
  LOOM_DEVICE void clear_tail(int rows) {
    using VTile = typename Ring::VTile;
    barrier_wait(ring.tail_landed(), tails);
    tails ^= 1;
    unsigned char* tile = ring.shared + Ring::kValues + values.stage() * VTile::kBytes;
#pragma unroll 1
    for (int slab = 0; slab < VTile::kSlabs; ++slab) {
#pragma unroll 1
      for (int i = rows * 8 + lane_index(); i < Class::kKv * 8; i += 32)
        reinterpret_cast<uint4*>(tile + slab * VTile::kSlabBytes)[i] = make_uint4(0, 0, 0, 0);
    }
    fence_async_proxy();
    __syncwarp();
  }

  LOOM_DEVICE void copy_queries(const Kept& kept) {
    using QTile = typename Ring::QTile;
    barrier_wait(ring.queries_free(queries.stage()), queries.parity() ^ 1);
    const QTile tile = ring.queries(queries.stage());
    const u32 landed = ring.queries_landed(queries.stage());
    queries.advance();
    if (lane_index() != 0) return;
    barrier_expect(landed, QTile::kBytes);
    const int token = kept.request.qo_begin + kept.work.item.q_row / Config::kGroupSize;
#pragma unroll
    for (int slab = 0; slab < QTile::kSlabs; ++slab)
      copy_tile(tile.base + slab * QTile::kSlabBytes, &args.q, landed, 64 * slab, 0,
                kept.work.kv_head(), token);
  }

  LOOM_DEVICE void copy_item(const Kept& kept) {
    if constexpr (kMapsKeys<Config, Class>) {
      copy_tiles(kept);
    } else if constexpr (kMapsQueries<Config, Class>) {
      copy_queries(kept);
    }
  }

  // In the order in which they are multiplied: keys, and then the values of the tile before.
  LOOM_DEVICE void copy_tiles(const Kept& kept) {
    Walk walk(kv_bounds<Config, Class>(plan, kept.request, kept.work), tiles);
    int rows = max(kept.work.item.kv_end - walk.position, 0);  // whole tiles, but for the last
    Box before = box(kept, walk.position);
    copy_keys(kept, before);
    if constexpr (kMapsQueries<Config, Class>) copy_queries(kept);
#pragma unroll 1
    for (walk.advance(tiles); walk.left > 0; walk.advance(tiles)) {
      const Box next = box(kept, walk.position);
      copy_keys(kept, next);
      copy_values(kept, before, rows);
      rows = Class::kKv;
      before = next;
    }
    copy_values(kept, before, rows);
  }

  LOOM_DEVICE void copy_queue(int items) {
    if (lane_index() == 0) {
      prefetch_map(&args.q);
      prefetch_map(&args.k);
      prefetch_map(&args.v);
    }
    typename Ring::KeptPlace place;
#pragma unroll 1
    for (int i = 0; i < items; ++i) {
      barrier_wait(ring.kept_full(place.stage()), place.parity());
      copy_item(ring.kept(place.stage()));
      __syncwarp();
      if (lane_index() == 0) barrier_arrive(ring.kept_free(place.stage()));
      place.advance();
    }
  }
};

}  // namespace loom
