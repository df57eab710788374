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
  static constexpr int kPagesOfLane = (kWarpRows + 31) / 32;

  // The pages of a warp's rows, a row a lane: found while the tile before is copied, as no copy may
  // wait for a dependent load (two a pass took longer than the products of a tile).
  struct Pages {
    int of[kPagesOfLane];
  };

  const AttentionArgs& args;
  const PlanHeader& plan;
  Ring ring;
  typename Ring::QueryPlace queries;
  typename Ring::Place keys;
  typename Ring::Place values;
  typename Ring::Place masks;
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

  LOOM_DEVICE static int first_row() { return GatherCrew::thread() / 32 * kWarpRows; }

  LOOM_DEVICE Pages find_pages(const Kept& kept, int position) const {
    Pages pages;
#pragma unroll
    for (int i = 0; i < kPagesOfLane; ++i) {
      const int row = 32 * i + lane_index();
      const int token = position + first_row() + row;
      const bool exists = row < kWarpRows && token >= 0 && token < kept.work.item.kv_end;
      pages.of[i] =
          exists ? args.page_indices[kept.request.kv_begin + token / Config::kPageSize] : 0;
    }
    return pages;
  }

  // Rows behind the last key become zeros.
  template <class Tile>
  LOOM_DEVICE void copy_rows(const Tile& tile, const Kept& kept, const Pages& pages,
                             const void* cache, i64 page_stride, i64 token_stride, i64 head_stride,
                             int position) const {
    const u16* head = static_cast<const u16*>(cache) + kept.work.kv_head() * head_stride;
    const int end = kept.work.item.kv_end;
    const int lane_row = lane_index() / kQueryLanes;
#pragma unroll
    for (int i = 0; i < kPagesOfLane; ++i) {
      constexpr int kLast = kWarpRows - 32 * (kPagesOfLane - 1);
#pragma unroll 4
      for (int pass = 0; pass < (i + 1 < kPagesOfLane ? 32 : kLast); pass += kRowsPerPass) {
        const i64 page = __shfl_sync(~0u, pages.of[i], pass + lane_row);
        const int row = first_row() + 32 * i + pass + lane_row;
        const int token = position + row;
        const bool exists = token < end;
        const i64 offset = page * page_stride + token % Config::kPageSize * token_stride;
        copy_row<kQueryLanes>(tile, row, lane_index() % kQueryLanes, exists ? head + offset : head,
                              exists);
      }
    }
  }

  LOOM_DEVICE void copy_keys(const Kept& kept, const Pages& pages, int position) {
    barrier_wait(ring.keys_free(keys.stage()), keys.parity() ^ 1);
    copy_rows(ring.keys(keys.stage()), kept, pages, args.k, args.k_page_stride, args.k_token_stride,
              args.k_head_stride, position);
    commit(ring.keys_full(keys.stage()));
    keys.advance();
  }
  LOOM_DEVICE void copy_values(const Kept& kept, const Pages& pages, int position) {
    barrier_wait(ring.values_free(values.stage()), values.parity() ^ 1);
    copy_rows(ring.values(values.stage()), kept, pages, args.v, args.v_page_stride,
              args.v_token_stride, args.v_head_stride, position);
    commit(ring.values_full(values.stage()));
    values.advance();
  }
  LOOM_DEVICE void gather_queries(const Kept& kept) {
    barrier_wait(ring.queries_free(queries.stage()), queries.parity() ^ 1);
    copy_queries<Config, GatherCrew>(ring.queries(queries.stage()), args, kept.request, kept.work);
    commit(ring.queries_full(queries.stage()));
    queries.advance();
  }

  LOOM_DEVICE void copy_mask_bits(const Kept& kept, int position) {
    barrier_wait(ring.mask_free(masks.stage()), masks.parity() ^ 1);
    copy_mask<Config, Class>(ring.mask(masks.stage()), args, kept.request, kept.work, position,
                             GatherCrew::thread(), GatherCrew::kThreads);
    commit(ring.mask_full(masks.stage()));
    masks.advance();
  }

  LOOM_DEVICE void begin_tile(const Kept& kept, const Pages& pages, int position) {
    if constexpr (!kMapsKeys<Config, Class>) copy_keys(kept, pages, position);
    if constexpr (Ring::Mask::kUsed) copy_mask_bits(kept, position);
  }
  LOOM_DEVICE void end_tile(const Kept& kept, const Pages& pages, int position) {
    if constexpr (!kMapsKeys<Config, Class>) copy_values(kept, pages, position);
  }
  // Of a tile that the walk will come to next, unless tiles are skipped.
  LOOM_DEVICE Pages pages_ahead(const Kept& kept, int position) const {
    if constexpr (kMapsKeys<Config, Class> || kSkipsTiles<Config>) return {};
    return find_pages(kept, position);
  }

  // In the order in which they are multiplied, as in MappedCopies.
  LOOM_DEVICE void copy_tiles(const Kept& kept) {
    TileWalk<Config, Class> walk(kv_bounds<Config, Class>(plan, kept.request, kept.work), tiles);
    int before = walk.position;
    Pages pages = {};
    if constexpr (!kMapsKeys<Config, Class>) pages = find_pages(kept, before);
    Pages ahead = pages_ahead(kept, before - Class::kKv);
    begin_tile(kept, pages, before);
    if constexpr (!kMapsQueries<Config, Class>) gather_queries(kept);
#pragma unroll 1
    for (walk.advance(tiles); walk.left > 0; walk.advance(tiles)) {
      if constexpr (!kMapsKeys<Config, Class> && kSkipsTiles<Config>)
        ahead = find_pages(kept, walk.position);
      const Pages now = ahead;
      ahead = pages_ahead(kept, walk.position - Class::kKv);
      begin_tile(kept, now, walk.position);
      end_tile(kept, pages, before);
      pages = now;
      before = walk.position;
    }
    end_tile(kept, pages, before);
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
