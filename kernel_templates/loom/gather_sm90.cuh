// SPDX-License-Identifier: Apache-2.0
// What no tensor map copies for attention_wgmma: query tiles that begin within a token, keys in
// pages that are no whole swizzle patterns, and the bits of custom masks. Two warps gather them by
// cp.async; what it brought is shown to the products as other stores are.
#pragma once

#include "loom/copy.cuh"
#include "loom/pipeline_sm90.cuh"

namespace loom {

template <class Config, class Class>
struct GatheredCopies {
  using Ring = MappedRing<Config, Class>;
  // A warp copies one half of a tile, four rows at a time.
  static constexpr int kWarpRows = Class::kKv / 2;
  static constexpr int kRowsPerPass = 32 / kQueryLanes;
  static constexpr int kRowsOfLane = (kWarpRows + 31) / 32;

  // A warp's rows, a row a lane: its page, or of listed blocks its key. They are found while the
  // tile before is copied, as no copy may wait for a dependent load (two a pass took longer than
  // the products of a tile).
  struct FoundRows {
    int of[kRowsOfLane];
  };

  const AttentionArgs& args;
  const PlanHeader& plan;
  Ring ring;
  typename Ring::QueryPlace queries;
  typename Ring::Place keys;
  typename Ring::Place values;
  typename Ring::Place besides;
  TileQueue<Config, Class> tiles;
  u32 landing = 0;  // the barrier of the copies that are under way; 0: none

  // Copies are waited for when those behind them are under way. (Consumers that wait for the first
  // have freed what the second overwrite.)
  LOOM_DEVICE void commit(u32 full) {
    copy_async_commit();
    if (landing != 0) arrive<1>();
    landing = full;
  }
  template <int left>
  LOOM_DEVICE void arrive() {
    copy_async_wait<left>();
    fence_async_proxy();
    barrier_arrive(landing);
  }

  // The key that stands at `token` of a walk over listed blocks; kNoKey where there is none: behind
  // the walk's end, and in a request's last block behind its last key.
  LOOM_DEVICE int key_of_block(const Kept& kept, int token) const {
    if (token >= kept.work.item.kv_end) return kNoKey;
    const int block = args.page_indices[kept.request.list_begin + token / Config::kBlockColumns];
    const int key = block * Config::kBlockColumns + token % Config::kBlockColumns;
    return key < kept.request.kv_len ? key : kNoKey;
  }
  LOOM_DEVICE int page_of(const Kept& kept, int token) const {
    if (token >= kept.work.item.kv_end) return 0;  // any: nothing is copied
    return args.page_indices[kept.request.kv_begin + token / Config::kPageSize];
  }

  LOOM_DEVICE static int first_row() { return GatherCrew::thread() / 32 * kWarpRows; }

  LOOM_DEVICE FoundRows find_rows(const Kept& kept, int position) const {
    FoundRows rows = {};
#pragma unroll
    for (int i = 0; i < kRowsOfLane; ++i) {
      const int row = 32 * i + lane_index();
      const int token = position + first_row() + row;
      if (row >= kWarpRows || token < 0) continue;
      if constexpr (Config::kBsr) {
        rows.of[i] = key_of_block(kept, token);
      } else {
        rows.of[i] = page_of(kept, token);
      }
    }
    return rows;
  }

  // Rows behind the last key become zeros.
  template <class Tile>
  LOOM_DEVICE void copy_rows(const Tile& tile, const Kept& kept, const FoundRows& rows,
                             const void* cache, i64 page_stride, i64 token_stride, i64 head_stride,
                             int position) const {
    const u16* head = static_cast<const u16*>(cache) + kept.work.kv_head() * head_stride;
    const int end = kept.work.item.kv_end;
    const int lane_row = lane_index() / kQueryLanes;
#pragma unroll
    for (int i = 0; i < kRowsOfLane; ++i) {
      constexpr int kLast = kWarpRows - 32 * (kRowsOfLane - 1);
#pragma unroll 4
      for (int pass = 0; pass < (i + 1 < kRowsOfLane ? 32 : kLast); pass += kRowsPerPass) {
        const int found = __shfl_sync(~0u, rows.of[i], pass + lane_row);
        const int row = first_row() + 32 * i + pass + lane_row;
        const int token = position + row;
        bool exists = token < end;
        i64 offset = 0;
        if constexpr (Config::kBsr) {
          exists = found != kNoKey;
          offset = (static_cast<i64>(kept.request.kv_begin) + found) * token_stride;
        } else {
          offset = found * page_stride + token % Config::kPageSize * token_stride;
        }
        copy_row<kQueryLanes>(tile, row, lane_index() % kQueryLanes, exists ? head + offset : head,
                              exists);
      }
    }
  }

  LOOM_DEVICE void copy_keys(const Kept& kept, const FoundRows& rows, int position) {
    barrier_wait(ring.keys_free(keys.stage()), keys.parity() ^ 1);
    copy_rows(ring.keys(keys.stage()), kept, rows, args.k, args.k_page_stride, args.k_token_stride,
              args.k_head_stride, position);
    commit(ring.keys_landed(keys.stage()));
    keys.advance();
  }
  LOOM_DEVICE void copy_values(const Kept& kept, const FoundRows& rows, int position) {
    barrier_wait(ring.values_free(values.stage()), values.parity() ^ 1);
    copy_rows(ring.values(values.stage()), kept, rows, args.v, args.v_page_stride,
              args.v_token_stride, args.v_head_stride, position);
    commit(ring.values_landed(values.stage()));
    values.advance();
  }
  LOOM_DEVICE void gather_queries(const Kept& kept) {
    barrier_wait(ring.queries_free(queries.stage()), queries.parity() ^ 1);
    copy_queries<Config, GatherCrew>(ring.queries(queries.stage()), args, kept.request, kept.work);
    commit(ring.queries_landed(queries.stage()));
    queries.advance();
  }

  LOOM_DEVICE void copy_beside(const Kept& kept, const FoundRows& rows, int position) {
    barrier_wait(ring.beside_free(besides.stage()), besides.parity() ^ 1);
    int* beside = ring.beside(besides.stage());
    if constexpr (Config::kBsr) {
#pragma unroll
      for (int i = 0; i < kRowsOfLane; ++i) {
        const int row = 32 * i + lane_index();
        if (row < kWarpRows) beside[first_row() + row] = rows.of[i];
      }
    } else {
      copy_mask<Config, Class>(reinterpret_cast<u32*>(beside), args, kept.request, kept.work,
                               position, GatherCrew::thread(), GatherCrew::kThreads);
    }
    commit(ring.beside_full(besides.stage()));
    besides.advance();
  }

  LOOM_DEVICE void begin_tile(const Kept& kept, const FoundRows& rows, int position) {
    if constexpr (!kMapsKeys<Config, Class>) copy_keys(kept, rows, position);
    if constexpr (Ring::kHasBeside) copy_beside(kept, rows, position);
  }
  LOOM_DEVICE void end_tile(const Kept& kept, const FoundRows& rows, int position) {
    if constexpr (!kMapsKeys<Config, Class>) copy_values(kept, rows, position);
  }
  // Of a tile that the walk will come to next, unless tiles are skipped.
  LOOM_DEVICE FoundRows rows_ahead(const Kept& kept, int position) const {
    if constexpr (kMapsKeys<Config, Class> || kSkipsTiles<Config>) return {};
    return find_rows(kept, position);
  }

  // In the order in which they are multiplied, as in MappedCopies.
  LOOM_DEVICE void copy_tiles(const Kept& kept) {
    TileWalk<Config, Class> walk(kv_bounds<Config, Class>(plan, kept.request, kept.work), tiles);
    int before = walk.position;
    FoundRows rows = {};
    if constexpr (!kMapsKeys<Config, Class>) rows = find_rows(kept, before);
    FoundRows ahead = rows_ahead(kept, before - Class::kKv);
    begin_tile(kept, rows, before);
    if constexpr (!kMapsQueries<Config, Class>) gather_queries(kept);
#pragma unroll 1
    for (walk.advance(tiles); walk.left > 0; walk.advance(tiles)) {
      if constexpr (!kMapsKeys<Config, Class> && kSkipsTiles<Config>)
        ahead = find_rows(kept, walk.position);
      const FoundRows now = ahead;
      ahead = rows_ahead(kept, walk.position - Class::kKv);
      begin_tile(kept, now, walk.position);
      end_tile(kept, rows, before);
      rows = now;
      before = walk.position;
    }
    end_tile(kept, rows, before);
  }

  LOOM_DEVICE void copy_queue(int items) {
    typename Ring::KeptPlace place;
#pragma unroll 1
    for (int i = 0; i < items; ++i) {
      barrier_wait(ring.kept_full(place.stage()), place.parity());
      if constexpr (Ring::kGathersTiles) {
        copy_tiles(ring.kept(place.stage()));
      } else {
        gather_queries(ring.kept(place.stage()));
      }
      if constexpr (kMapsKeys<Config, Class>) {  // nothing follows that these could wait behind
        arrive<0>();
        landing = 0;
      }
      __syncwarp();
      if (lane_index() == 0) barrier_arrive(ring.kept_free(place.stage()));
      place.advance();
    }
    if (landing != 0) arrive<0>();
  }
};

}  // namespace loom
