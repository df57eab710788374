// SPDX-License-Identifier: Apache-2.0
// Row functors in attention_wgmma: a warpgroup of their own stands between copies and products. It
// rewrites the rows of a tile that has landed and hands the tile on. (The products' warps have no
// registers for rows, and two of them would have to meet over each tile of keys.)
#pragma once

#include "loom/items_sm90.cuh"
#include "loom/roles_sm90.cuh"
#include "loom/row_pass.cuh"

namespace loom {

template <class Config, class Class, class Variant>
struct RowPass {
  using Ring = MappedRing<Config, Class>;
  using Crew = PassCrew<Config>;

  const AttentionArgs& args;
  const PlanHeader& plan;
  const Variant& variant;
  Ring ring;
  typename Ring::QueryPlace queries;
  typename Ring::Place keys;
  typename Ring::Place values;
  TileQueue<Config, Class> tiles;

  // Products read through another proxy than the one these stores went through.
  LOOM_DEVICE static void hand_on(u32 full) {
    fence_async_proxy();
    __syncwarp();
    if (lane_index() == 0) barrier_arrive(full);
  }

  LOOM_DEVICE void pass_queries(const Kept& kept) {
    if constexpr (Config::kHasQueryTransform) {
      barrier_wait(ring.queries_landed(queries.stage()), queries.parity());
      transform_queries<Config, Crew>(ring.shared, ring.queries(queries.stage()), variant, args,
                                      kept.request, kept.work);
      hand_on(ring.queries_full(queries.stage()));
      queries.advance();
    }
  }
  // Of `end`: rows from there on are not seen, and stay as they are.
  LOOM_DEVICE void pass_keys(const Kept& kept, int position, int end) {
    if constexpr (Config::kHasKeyTransform) {
      const KvColumns<Config> columns{args, kept.request, nullptr, position};
      barrier_wait(ring.keys_landed(keys.stage()), keys.parity());
      transform_keys<Config, Crew>(ring.shared, ring.keys(keys.stage()), variant,
                                   KeyRows<Config>{columns, kept.work},
                                   min(Class::kKv, end - position));
      hand_on(ring.keys_full(keys.stage()));
      keys.advance();
    }
  }
  LOOM_DEVICE void pass_values(const Kept& kept, int position, int end) {
    if constexpr (Config::kHasValueTransform) {
      const KvColumns<Config> columns{args, kept.request, nullptr, position};
      barrier_wait(ring.values_landed(values.stage()), values.parity());
      transform_values<Config, Crew>(ring.shared, ring.values(values.stage()), variant,
                                     KeyRows<Config>{columns, kept.work},
                                     min(Class::kKv, end - position));
      hand_on(ring.values_full(values.stage()));
      values.advance();
    }
  }

  // In the order in which the copies were issued.
  LOOM_DEVICE void pass_item(const Kept& kept) {
    if constexpr (Ring::kPassesTiles) {
      const KvBounds bounds = kv_bounds<Config, Class>(plan, kept.request, kept.work);
      TileWalk<Config, Class> walk(bounds, tiles);
      int before = walk.position;
      pass_keys(kept, before, bounds.end);
      pass_queries(kept);
#pragma unroll 1
      for (walk.advance(tiles); walk.left > 0; walk.advance(tiles)) {
        pass_keys(kept, walk.position, bounds.end);
        pass_values(kept, before, bounds.end);
        before = walk.position;
      }
      pass_values(kept, before, bounds.end);
    } else {
      pass_queries(kept);
    }
  }

  LOOM_DEVICE void run(int items) {
    typename Ring::KeptPlace place;
#pragma unroll 1
    for (int i = 0; i < items; ++i) {
      barrier_wait(ring.kept_full(place.stage()), place.parity());
      pass_item(ring.kept(place.stage()));
      __syncwarp();
      if (lane_index() == 0) barrier_arrive(ring.kept_free(place.stage()));
      place.advance();
    }
  }
};

}  // namespace loom
