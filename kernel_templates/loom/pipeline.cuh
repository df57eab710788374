// SPDX-License-Identifier: Apache-2.0
// The ring of K and V stages. One barrier per tile: it says both that the copies of this tile have
// landed for everyone and that everyone is done with the stage that the next copies overwrite.
#pragma once

#include "loom/copy.cuh"
#include "loom/mask.cuh"
#include "loom/tile_mask.cuh"

namespace loom {

template <class Config, class Class>
struct KvRing {
  // Tiles count 16-bit units: two elements of an 8-bit cache.
  static constexpr int kElementBytes = sizeof(typename Config::KvElement);
  using KTile = SharedTile<Class::kKv, Config::kHeadDimQk * kElementBytes / 2>;
  using VTile = SharedTile<Class::kKv, Config::kHeadDimVo * kElementBytes / 2>;
  static constexpr int kStageBytes = KTile::kBytes + VTile::kBytes;
  static constexpr int kStagesBytes = Class::kStages * kStageBytes;
  // Behind the stages, for each: of block-sparse rows the position of each key (columns.cuh), else
  // the bits of a custom mask (mask.cuh).
  static constexpr int kBesideBytes =
      Config::kBsr ? Class::kKv * 4 : MaskTile<Config, Class>::kBytes;
  static constexpr int kBytes = kStagesBytes + Class::kStages * kBesideBytes;

  u32 base;

  LOOM_DEVICE KTile keys(int stage) const { return {base + static_cast<u32>(stage * kStageBytes)}; }
  LOOM_DEVICE VTile values(int stage) const {
    return {base + static_cast<u32>(stage * kStageBytes + KTile::kBytes)};
  }

  LOOM_DEVICE static int* beside(unsigned char* ring, int stage) {
    return reinterpret_cast<int*>(ring + kStagesBytes + stage * kBesideBytes);
  }

  // The next tile that is walked at all: of variants with a tile_mask, a skipped one is not even
  // copied.
  template <class Tile>
  LOOM_DEVICE static int next(const Tile& tile, int position, int end) {
    position += Class::kKv;
    if constexpr (kSkipsTiles<Config>) {
      while (position < end && tile.is_skipped(position)) position += Class::kKv;
    }
    return position;
  }

  // Calls tile.step(kv_position, stage, keys, values, copy_next) for every tile of [begin, end), in
  // order; `begin` is a multiple of the KV tile. (Tiles made by `step` from the stage cost spills.)
  // The query copies that were issued before belong to the first tile's group. The step calls
  // copy_next() once: at its start where bytes in flight are what counts, or behind its first
  // product, which then hides the addresses' arithmetic.
  template <class Tile>
  LOOM_DEVICE void walk(KvSource<Config, Class::kKv>& source, const AttentionArgs& args, int begin,
                        int end, Tile& tile) const {
    constexpr int kAhead = Class::kStages - 1;
    [[maybe_unused]] int cursor = begin;  // of the copies, where tiles are skipped
    const auto issue = [&](int position, int stage) {
      if constexpr (kSkipsTiles<Config>) position = cursor;
      if (position < end) {
        source.copy(args, keys(stage), values(stage), position, stage);
        if constexpr (MaskTile<Config, Class>::kUsed)
          copy_mask<Config, Class>(reinterpret_cast<u32*>(tile.beside(stage)), args, tile.request,
                                   tile.work, position, thread_index_now(), Config::kThreads);
        const int following = next(tile, position, end);
        source.fetch_pages(following);
        if constexpr (kSkipsTiles<Config>) cursor = following;
      }
      copy_async_commit();  // empty groups too: the waits below count groups
    };
    source.fetch_pages(begin);
#pragma unroll 1  // unrolled, it was 3 % of what a joint kernel takes to compile
    for (int i = 0; i < kAhead; ++i) issue(begin + i * Class::kKv, i);
    int stage = 0;
#pragma unroll 1
    for (int position = begin; position < end; position = next(tile, position, end)) {
      copy_async_wait<kAhead - 1>();
      __syncthreads();
      tile.step(position, stage, keys(stage), values(stage), [&] {
        issue(position + kAhead * Class::kKv,
              stage == 0 ? kAhead : stage - 1);  // the stage before this one, in a ring
      });
      stage = stage == kAhead ? 0 : stage + 1;
    }
  }
};

// One item from its queries to its stored rows, the same in every family: a tile of queries gives
// begin(), the walk's step(), and finish().
template <class Config, class Class, class Tile>
LOOM_DEVICE void run_tile(Tile& tile) {
  using Ring = KvRing<Config, Class>;
  tile.begin();
  if constexpr (kSkipsTiles<Config>)
    tile.bounds.begin = Ring::next(tile, tile.bounds.begin - Class::kKv, tile.bounds.end);
  KvSource<Config, Class::kKv> source(tile.args, tile.request, tile.work, tile.bounds.end,
                                      tile.beside(0));
  tile.ring().walk(source, tile.args, tile.bounds.begin, tile.bounds.end, tile);
  copy_async_wait<0>();  // of an item without keys: nothing above waited for its queries
  __syncthreads();       // queries and ring become the epilogue's scratch
  tile.finish();
}

}  // namespace loom
