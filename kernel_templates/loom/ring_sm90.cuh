// SPDX-License-Identifier: Apache-2.0
// The shared memory of attention_wgmma: queries, stages of keys and values, what is kept of items,
// and the barriers by which warps hand all of it to and fro. Keys and values have barriers of their
// own, since a stage of keys is free a whole product before that of its values.
#pragma once

#include "loom/mask.cuh"
#include "loom/tile_mask.cuh"
#include "loom/warpgroup.cuh"

namespace loom {

constexpr int kGroupThreads = 128;  // of a warpgroup
constexpr int kKeptSlots = 4;       // of items: one stored, one multiplied, one copied, one fetched
constexpr int kTileSlots = 4;       // of tiles that were taken and not all know of yet

// Whether a query tile is whole tokens, and so one box of a map; else its rows are gathered.
template <class Config, class Class>
constexpr bool kMapsQueries = Class::kQ % Config::kGroupSize == 0;

// Whether a KV tile is a few boxes of a map, whole patterns of the swizzle each: of tokens that
// follow each other, of one page, or of whole pages.
template <class Config, class Class>
constexpr bool kMapsKeys =
    !Config::kBsr && (!Config::kPaged ||
                      (Config::kPageSize % 8 == 0 && (Class::kKv % Config::kPageSize == 0
                                                          ? Class::kKv / Config::kPageSize <= 32
                                                          : Config::kPageSize % Class::kKv == 0)));

// The warps that gather what is not mapped: the last two of the copying warpgroup.
struct GatherCrew {
  static constexpr int kFirst = 64;
  static constexpr int kThreads = 64;
  LOOM_DEVICE static int thread() { return static_cast<int>(threadIdx.x) - kFirst; }
};

// Which tile is next, where that is decided: a skipped one is not even copied.
struct NextTile {
  int position;  // kNoKey: the item has no more
  TileMask mask;
};

// A place in a ring, and the parity of the phase that its barriers are in on this turn. One
// register: with two the copies of head dim 256 spilled.
template <int stages>
struct RingPlace {
  static_assert((stages & (stages - 1)) == 0, "a division would cost what the register saves");
  u32 turn = 0;
  LOOM_DEVICE int stage() const { return static_cast<int>(turn % stages); }
  LOOM_DEVICE u32 parity() const { return turn / stages & 1; }
  LOOM_DEVICE void advance() { ++turn; }
};

// Where everything stands in shared memory.
template <class Config, class Class>
struct MappedRing {
  using QTile = SlabTile<Class::kQ, Config::kHeadDimQk>;
  using KTile = SlabTile<Class::kKv, Config::kHeadDimQk>;
  using VTile = SlabTile<Class::kKv, Config::kHeadDimVo>;
  using Mask = MaskTile<Config, Class>;
  // Beside a stage of keys: of listed blocks the position of each, else the bits of a custom mask.
  static constexpr bool kHasBeside = Config::kBsr || Mask::kUsed;
  static constexpr int kBesideBytes = Config::kBsr ? Class::kKv * 4 : Mask::kBytes;
  using Place = RingPlace<Class::kStages>;
  static constexpr int kConsumers = Class::kQ / 64;  // warpgroups
  static constexpr int kStages = Class::kStages;
  static constexpr int kBarrierBytes = 8 * (8 * kStages + 8 + 2 * kKeptSlots + 2 * kTileSlots);
  static constexpr int kScratchBytes = 16;
  static constexpr int kOtherBytes = kStages * (KTile::kBytes + VTile::kBytes + kBesideBytes) +
                                     kBarrierBytes + kKeptSlots * int{sizeof(Kept)} +
                                     kTileSlots * int{sizeof(NextTile)} + kScratchBytes;
  // Whether the crew walks an item's tiles, or copies anything at all.
  static constexpr bool kGathersTiles = !kMapsKeys<Config, Class> || kHasBeside;
  static constexpr bool kGathers = kGathersTiles || !kMapsQueries<Config, Class>;
  // Warps that read what is kept of an item, and those that walk its tiles.
  static constexpr int kGatherWarps = GatherCrew::kThreads / 32;
  static constexpr int kPassWarps = kHasRowFunctors<Config> ? kGroupThreads / 32 : 0;
  static constexpr bool kPassesTiles = Config::kHasKeyTransform || Config::kHasValueTransform;
  static constexpr int kKeptReaders =
      1 + 4 * kConsumers + (kGathers ? kGatherWarps : 0) + kPassWarps;
  static constexpr int kTileReaders = (kMapsKeys<Config, Class> ? 1 : 0) + 4 * kConsumers +
                                      (kGathersTiles ? kGatherWarps : 0) +
                                      (kPassesTiles ? kPassWarps : 0);
  // Who arrives when a tile has landed.
  static constexpr int kKeyCopiers = kMapsKeys<Config, Class> ? 1 : GatherCrew::kThreads;
  static constexpr int kQueryCopiers = kMapsQueries<Config, Class> ? 1 : GatherCrew::kThreads;
  // Two, where there is room, so that an item's queries are there before the last one is over.
  static constexpr int kQueryTiles = (Config::kSharedBytes - kOtherBytes) / QTile::kBytes;
  static constexpr int kKeys = kQueryTiles * QTile::kBytes;
  static constexpr int kValues = kKeys + kStages * KTile::kBytes;
  static constexpr int kBeside = kValues + kStages * VTile::kBytes;
  static constexpr int kBarriers = kBeside + kStages * kBesideBytes;
  static constexpr int kKept = kBarriers + kBarrierBytes;
  static constexpr int kTiles = kKept + kKeptSlots * int{sizeof(Kept)};
  static constexpr int kScratch = kTiles + kTileSlots * int{sizeof(NextTile)};
  static_assert(kQueryTiles >= 1 && kQueryTiles <= 2 &&
                    kQueryTiles * QTile::kBytes + kOtherBytes == Config::kSharedBytes,
                "spec/wgmma_tiles.cc counts the same bytes");
  using QueryPlace = RingPlace<kQueryTiles>;
  using KeptPlace = RingPlace<kKeptSlots>;
  using TilePlace = RingPlace<kTileSlots>;

  unsigned char* shared;

  LOOM_DEVICE u32 at(int offset) const { return shared_address(shared) + offset; }
  LOOM_DEVICE QTile queries(int stage) const { return {at(stage * QTile::kBytes)}; }
  LOOM_DEVICE KTile keys(int stage) const { return {at(kKeys + stage * KTile::kBytes)}; }
  LOOM_DEVICE VTile values(int stage) const { return {at(kValues + stage * VTile::kBytes)}; }
  LOOM_DEVICE int* beside(int stage) const {
    return reinterpret_cast<int*>(shared + kBeside + stage * kBesideBytes);
  }
  // Landed: the copies have. Full: what a row functor makes of them may be read. Free: nothing
  // reads the stage any more.
  LOOM_DEVICE u32 barrier(int number) const { return at(kBarriers + 8 * number); }
  LOOM_DEVICE u32 keys_full(int stage) const { return barrier(stage); }
  LOOM_DEVICE u32 keys_free(int stage) const { return barrier(kStages + stage); }
  LOOM_DEVICE u32 values_full(int stage) const { return barrier(2 * kStages + stage); }
  LOOM_DEVICE u32 values_free(int stage) const { return barrier(3 * kStages + stage); }
  LOOM_DEVICE u32 beside_full(int stage) const { return barrier(4 * kStages + stage); }
  LOOM_DEVICE u32 beside_free(int stage) const { return barrier(5 * kStages + stage); }
  LOOM_DEVICE u32 keys_landed(int stage) const {
    return Config::kHasKeyTransform ? barrier(6 * kStages + stage) : keys_full(stage);
  }
  LOOM_DEVICE u32 values_landed(int stage) const {
    return Config::kHasValueTransform ? barrier(7 * kStages + stage) : values_full(stage);
  }
  static constexpr int kFixed = 8 * kStages;  // number of the first of the others
  LOOM_DEVICE u32 queries_full(int stage) const { return barrier(kFixed + stage); }
  LOOM_DEVICE u32 queries_free(int stage) const { return barrier(kFixed + 2 + stage); }
  LOOM_DEVICE u32 queries_landed(int stage) const {
    return Config::kHasQueryTransform ? barrier(kFixed + 4 + stage) : queries_full(stage);
  }
  // Values that have landed and still want their rows behind the last key cleared.
  LOOM_DEVICE u32 tail_landed() const { return barrier(kFixed + 6); }
  LOOM_DEVICE u32 kept_full(int slot) const { return barrier(kFixed + 8 + slot); }
  LOOM_DEVICE u32 kept_free(int slot) const { return barrier(kFixed + 8 + kKeptSlots + slot); }
  LOOM_DEVICE u32 tile_full(int slot) const { return barrier(kFixed + 8 + 2 * kKeptSlots + slot); }
  LOOM_DEVICE u32 tile_free(int slot) const {
    return barrier(kFixed + 8 + 2 * kKeptSlots + kTileSlots + slot);
  }
  LOOM_DEVICE Kept& kept(int slot) const { return reinterpret_cast<Kept*>(shared + kKept)[slot]; }
  LOOM_DEVICE NextTile& tile(int slot) const {
    return reinterpret_cast<NextTile*>(shared + kTiles)[slot];
  }
  LOOM_DEVICE int* scratch() const { return reinterpret_cast<int*>(shared + kScratch); }

  // One thread; the others wait behind it.
  LOOM_DEVICE void init() const {
#pragma unroll
    for (int stage = 0; stage < kStages; ++stage) {
      // Where no functor stands between, landed and full are one.
      if constexpr (Config::kHasKeyTransform) barrier_init(keys_full(stage), kPassWarps);
      if constexpr (Config::kHasValueTransform) barrier_init(values_full(stage), kPassWarps);
      barrier_init(keys_landed(stage), kKeyCopiers);
      barrier_init(keys_free(stage), kConsumers);
      barrier_init(values_landed(stage), kKeyCopiers);
      barrier_init(values_free(stage), kConsumers);
      barrier_init(beside_full(stage), GatherCrew::kThreads);
      barrier_init(beside_free(stage), 4 * kConsumers);  // warps
    }
#pragma unroll
    for (int stage = 0; stage < kQueryTiles; ++stage) {
      if constexpr (Config::kHasQueryTransform) barrier_init(queries_full(stage), kPassWarps);
      barrier_init(queries_landed(stage), kQueryCopiers);
      barrier_init(queries_free(stage), kConsumers);
    }
#pragma unroll
    for (int slot = 0; slot < kKeptSlots; ++slot) {
      barrier_init(kept_full(slot), 1);
      barrier_init(kept_free(slot), kKeptReaders);
    }
#pragma unroll
    for (int slot = 0; slot < kTileSlots; ++slot) {
      barrier_init(tile_full(slot), 1);
      barrier_init(tile_free(slot), kTileReaders);
    }
    barrier_init(tail_landed(), 1);
    barrier_init_done();
  }
};

}  // namespace loom
