// SPDX-License-Identifier: Apache-2.0
// The pipeline of attention_wgmma: one warp fetches items of the queue ahead, another copies their
// queries, keys and values by tensor map into shared memory, warpgroups multiply them, and barriers
// that count bytes hand the stages to and fro. Keys and values have barriers of their own, since a
// stage of keys is free a whole product before that of its values. What is kept of an item reaches
// the warpgroups with its queries.
#pragma once

#include "loom/ops_sm90.cuh"
#include "loom/queue.cuh"

namespace loom {

constexpr int kGroupThreads = 128;  // of a warpgroup
constexpr int kKeptSlots = 4;       // of items: one stored, one multiplied, one copied, one fetched

// Whether a query tile is whole tokens, and so one box of a map; else its rows are gathered.
template <class Config, class Class>
constexpr bool kMapsQueries = Class::kQ % Config::kGroupSize == 0;

// Whether a KV tile is a few boxes of a map, whole patterns of the swizzle each: of tokens that
// follow each other, of one page, or of whole pages.
template <class Config, class Class>
constexpr bool kMapsKeys =
    !Config::kPaged || (Config::kPageSize % 8 == 0 && (Class::kKv % Config::kPageSize == 0
                                                           ? Class::kKv / Config::kPageSize <= 32
                                                           : Config::kPageSize % Class::kKv == 0));

// The warps that gather what is not mapped: the last two of the copying warpgroup.
struct GatherCrew {
  static constexpr int kFirst = 64;
  static constexpr int kThreads = 64;
  LOOM_DEVICE static int thread() { return static_cast<int>(threadIdx.x) - kFirst; }
};

// A stage of a ring, and the parity of the phase that its barriers are in on this turn.
template <int stages>
struct RingPlace {
  int stage = 0;
  u32 parity = 0;
  LOOM_DEVICE void advance() {
    if (++stage < stages) return;
    stage = 0;
    parity ^= 1;
  }
};

// Where everything stands in shared memory.
template <class Config, class Class>
struct MappedRing {
  using QTile = SharedTile<Class::kQ, Config::kHeadDimQk>;
  using KTile = SharedTile<Class::kKv, Config::kHeadDimQk>;
  using VTile = SharedTile<Class::kKv, Config::kHeadDimVo>;
  using Place = RingPlace<Class::kStages>;
  static constexpr int kConsumers = Class::kQ / 64;  // warpgroups
  static constexpr int kBarrierBytes = 8 * (4 * Class::kStages + 6 + 2 * kKeptSlots);
  static constexpr int kScratchBytes = 16;
  static constexpr int kOtherBytes = Class::kStages * (KTile::kBytes + VTile::kBytes) +
                                     kBarrierBytes + kKeptSlots * int{sizeof(Kept)} + kScratchBytes;
  static constexpr int kStages = Class::kStages;
  static constexpr bool kGathers = !kMapsQueries<Config, Class> || !kMapsKeys<Config, Class>;
  static constexpr int kKeptReaders =  // warps
      1 + 4 * kConsumers + (kGathers ? GatherCrew::kThreads / 32 : 0);
  // Who arrives when a tile has landed.
  static constexpr int kKeyCopiers = kMapsKeys<Config, Class> ? 1 : GatherCrew::kThreads;
  static constexpr int kQueryCopiers = kMapsQueries<Config, Class> ? 1 : GatherCrew::kThreads;
  // Two, where there is room, so that an item's queries are there before the last one is over.
  static constexpr int kQueryTiles = (Config::kSharedBytes - kOtherBytes) / QTile::kBytes;
  static constexpr int kKeys = kQueryTiles * QTile::kBytes;
  static constexpr int kValues = kKeys + kStages * KTile::kBytes;
  static constexpr int kBarriers = kValues + kStages * VTile::kBytes;
  static constexpr int kKept = kBarriers + kBarrierBytes;
  static constexpr int kScratch = kKept + kKeptSlots * int{sizeof(Kept)};
  static_assert(kQueryTiles >= 1 && kQueryTiles <= 2 &&
                    kQueryTiles * QTile::kBytes + kOtherBytes == Config::kSharedBytes,
                "spec/wgmma_tiles.cc counts the same bytes");
  using QueryPlace = RingPlace<kQueryTiles>;
  using KeptPlace = RingPlace<kKeptSlots>;

  unsigned char* shared;

  LOOM_DEVICE u32 at(int offset) const { return shared_address(shared) + offset; }
  LOOM_DEVICE QTile queries(int stage) const { return {at(stage * QTile::kBytes)}; }
  LOOM_DEVICE KTile keys(int stage) const { return {at(kKeys + stage * KTile::kBytes)}; }
  LOOM_DEVICE VTile values(int stage) const { return {at(kValues + stage * VTile::kBytes)}; }
  // Full: the copies have landed. Free: no product reads the stage any more.
  LOOM_DEVICE u32 keys_full(int stage) const { return at(kBarriers + 8 * stage); }
  LOOM_DEVICE u32 keys_free(int stage) const { return at(kBarriers + 8 * (kStages + stage)); }
  LOOM_DEVICE u32 values_full(int stage) const { return at(kBarriers + 8 * (2 * kStages + stage)); }
  LOOM_DEVICE u32 values_free(int stage) const { return at(kBarriers + 8 * (3 * kStages + stage)); }
  LOOM_DEVICE u32 queries_full(int stage) const {
    return at(kBarriers + 8 * (4 * kStages + stage));
  }
  LOOM_DEVICE u32 queries_free(int stage) const {
    return at(kBarriers + 8 * (4 * kStages + 2 + stage));
  }
  // Values that have landed and still want their rows behind the last key cleared.
  LOOM_DEVICE u32 tail_landed() const { return at(kBarriers + 8 * (4 * kStages + 4)); }
  LOOM_DEVICE u32 kept_full(int slot) const { return at(kBarriers + 8 * (4 * kStages + 6 + slot)); }
  LOOM_DEVICE u32 kept_free(int slot) const {
    return at(kBarriers + 8 * (4 * kStages + 6 + kKeptSlots + slot));
  }
  LOOM_DEVICE Kept& kept(int slot) const { return reinterpret_cast<Kept*>(shared + kKept)[slot]; }
  LOOM_DEVICE int* scratch() const { return reinterpret_cast<int*>(shared + kScratch); }

  // One thread; the others wait behind it.
  LOOM_DEVICE void init() const {
#pragma unroll
    for (int stage = 0; stage < kStages; ++stage) {
      barrier_init(keys_full(stage), kKeyCopiers);
      barrier_init(keys_free(stage), kConsumers);
      barrier_init(values_full(stage), kKeyCopiers);
      barrier_init(values_free(stage), kConsumers);
    }
#pragma unroll
    for (int stage = 0; stage < kQueryTiles; ++stage) {
      barrier_init(queries_full(stage), kQueryCopiers);
      barrier_init(queries_free(stage), kConsumers);
    }
#pragma unroll
    for (int slot = 0; slot < kKeptSlots; ++slot) {
      barrier_init(kept_full(slot), 1);
      barrier_init(kept_free(slot), kKeptReaders);
    }
    barrier_init(tail_landed(), 1);
    barrier_init_done();
  }
};

// The tiles of an item, from the last to the first: of causal rows those that are cut come first.
// At least one: of an item without keys one that no row sees.
template <class Class>
struct TileWalk {
  int position;  // of the tile
  int left;      // tiles from this one on

  LOOM_DEVICE explicit TileWalk(const KvBounds& bounds) {
    const int end = max(bounds.end, bounds.begin + 1);
    left = (end - bounds.begin + Class::kKv - 1) / Class::kKv;
    position = bounds.begin + (left - 1) * Class::kKv;
  }
  LOOM_DEVICE void advance() {
    position -= Class::kKv;
    --left;
  }
};

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
template <class Config, class Class>
LOOM_DEVICE void fetch_queue(const MappedRing<Config, Class>& ring, const AttentionArgs& args,
                             const PlanHeader& plan, const CtaQueue& queue) {
  typename MappedRing<Config, Class>::KeptPlace place;
#pragma unroll 1
  for (int i = queue.begin; i < queue.end; ++i) {
    barrier_wait(ring.kept_free(place.stage), place.parity ^ 1);
    fetch_item<Config>(ring.kept(place.stage), args, plan, queue.lane, i);
    if (lane_index() == 0) barrier_arrive(ring.kept_full(place.stage));
    place.advance();
  }
}

// The copying warp. Lanes share the boxes of a tile: one of all its rows, or one a page.
template <class Config, class Class>
struct MappedCopies {
  using Ring = MappedRing<Config, Class>;
  using Walk = TileWalk<Class>;
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
  LOOM_DEVICE void copy(const Tile& tile, const MapBytes& map, u32 full, const Box& box,
                        int kv_head) const {
    const int lane = lane_index();
    if (lane == 0) barrier_expect(full, Tile::kBytes);
    if (lane >= kBoxes) return;
#pragma unroll
    for (int slab = 0; slab < Tile::kSlabChunks / 8; ++slab) {
      copy_tile(tile.base + slab * Tile::kSlabBytes + lane * kBoxRows * 128, &map, full, 64 * slab,
                box.row, kv_head, box.page);
    }
  }

  LOOM_DEVICE void copy_keys(const Kept& kept, const Box& box) {
    barrier_wait(ring.keys_free(keys.stage), keys.parity ^ 1);
    copy(ring.keys(keys.stage), args.k, ring.keys_full(keys.stage), box, kept.work.kv_head());
    keys.advance();
  }

  // `rows`: of the tile that hold keys of the walk.
  LOOM_DEVICE void copy_values(const Kept& kept, const Box& box, int rows) {
    barrier_wait(ring.values_free(values.stage), values.parity ^ 1);
    const u32 full = ring.values_full(values.stage);
    const bool whole = rows >= Class::kKv;
    copy(ring.values(values.stage), args.v, whole ? full : ring.tail_landed(), box,
         kept.work.kv_head());
    if (!whole) {
      clear_tail(rows);
      if (lane_index() == 0) barrier_arrive(full);
    }
    values.advance();
  }

  // What lies behind the last key belongs to another request or to nobody: a weight of zero times a
  // NaN there would be one.
  LOOM_DEVICE void clear_tail(int rows) {
    using VTile = typename Ring::VTile;
    barrier_wait(ring.tail_landed(), tails);
    tails ^= 1;
    unsigned char* tile = ring.shared + Ring::kValues + values.stage * VTile::kBytes;
#pragma unroll 1
    for (int slab = 0; slab < VTile::kSlabChunks / 8; ++slab) {
#pragma unroll 1
      for (int i = rows * 8 + lane_index(); i < Class::kKv * 8; i += 32)
        reinterpret_cast<uint4*>(tile + slab * VTile::kSlabBytes)[i] = make_uint4(0, 0, 0, 0);
    }
    fence_async_proxy();
    __syncwarp();
  }

  LOOM_DEVICE void copy_queries(const Kept& kept) {
    using QTile = typename Ring::QTile;
    barrier_wait(ring.queries_free(queries.stage), queries.parity ^ 1);
    const QTile tile = ring.queries(queries.stage);
    const u32 full = ring.queries_full(queries.stage);
    queries.advance();
    if (lane_index() != 0) return;
    barrier_expect(full, QTile::kBytes);
    const int token = kept.request.qo_begin + kept.work.item.q_row / Config::kGroupSize;
#pragma unroll
    for (int slab = 0; slab < QTile::kSlabChunks / 8; ++slab)
      copy_tile(tile.base + slab * QTile::kSlabBytes, &args.q, full, 64 * slab, 0,
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
    Walk walk(kv_bounds<Config, Class>(plan, kept.request, kept.work));
    int rows = max(kept.work.item.kv_end - walk.position, 0);  // whole tiles, but for the last
    Box before = box(kept, walk.position);
    copy_keys(kept, before);
    if constexpr (kMapsQueries<Config, Class>) copy_queries(kept);
#pragma unroll 1
    for (walk.advance(); walk.left > 0; walk.advance()) {
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
      barrier_wait(ring.kept_full(place.stage), place.parity);
      copy_item(ring.kept(place.stage));
      __syncwarp();
      if (lane_index() == 0) barrier_arrive(ring.kept_free(place.stage));
      place.advance();
    }
  }
};

}  // namespace loom
