// SPDX-License-Identifier: Apache-2.0
// attention_wgmma: attention on the warpgroup products of sm_90a. One warp copies, two or three
// warpgroups of 64 query rows each multiply. A warpgroup issues the product of a tile's keys and
// that of the values of the tile before together, and takes the softmax of the one while the other
// runs; warpgroups take turns at issuing, so that one's softmax lies under the other's products
// (FlashAttention-3, Shah et al. 2024).
#pragma once

#include "loom/gather_sm90.cuh"
#include "loom/roles_sm90.cuh"
#include "loom/rows_sm90.cuh"

namespace loom {

// One warpgroup's 64 rows of one item after the other.
template <class Config, class Class, class Variant>
struct GroupRows {
  using Element = typename Config::Element;
  using Ring = MappedRing<Config, Class>;
  using Crew = Consumers<Config>;
  using Item = OpenItem<Config, Class>;
  using Output = OutputRows<Config, Variant>;
  static constexpr int kLogits = Class::kKv / 8;
  static constexpr int kValues = Config::kHeadDimVo / 8;
  static constexpr bool kAsksTiles = Config::kHasTileMask && Config::kHasLogitsMask;

  const AttentionArgs& args;
  const PlanHeader& plan;
  const Variant& variant;
  Ring ring;
  typename Ring::QueryPlace query_place;
  typename Ring::Place key_place;
  typename Ring::Place value_place;
  typename Ring::Place beside_place;
  TileQueue<Config, Class> tiles;

  SoftmaxState<1> state;
  float logits[1][kLogits][4];
  float values[1][kValues][4];
  u32 weights[kLogits / 2][4];

  // Of this warp within the item's tile.
  LOOM_DEVICE static int row_begin() { return Crew::warp() * 16; }
  LOOM_DEVICE static bool leads() { return Crew::thread() % kGroupThreads == 0; }

  LOOM_DEVICE void multiply_queries() {
    // Anew for every tile: held through the KV loop, operands of head dim 256 took 32 registers.
    u32 queries = ring.queries(query_place.stage()).base + Crew::group() * 64 * 128;
    hold(queries);
    const typename Ring::KTile keys = ring.keys(key_place.stage());
#pragma unroll
    for (int k = 0; k < Config::kHeadDimQk / 16; ++k) {
      multiply_shared(logits[0], operand_of_rows<typename Ring::QTile>(queries, k),
                      operand_of_rows<typename Ring::KTile>(keys.base, k), k != 0, Element{});
    }
    products_end();
  }
  LOOM_DEVICE void multiply_values() {
    const typename Ring::VTile tokens = ring.values(value_place.stage());
#pragma unroll
    for (int k = 0; k < kLogits / 2; ++k)
      multiply_held(values[0], weights[k], operand_of_columns(tokens, k), Element{});
    products_end();
  }
  LOOM_DEVICE void await_keys() const {
    barrier_wait(ring.keys_full(key_place.stage()), key_place.parity());
    if constexpr (Ring::kHasBeside)
      barrier_wait(ring.beside_full(beside_place.stage()), beside_place.parity());
  }
  LOOM_DEVICE void await_values() const {
    barrier_wait(ring.values_full(value_place.stage()), value_place.parity());
  }
  LOOM_DEVICE void release_keys() {
    if (leads()) barrier_arrive(ring.keys_free(key_place.stage()));
    key_place.advance();
  }
  // Each warp for itself: unlike keys, which one product of all reads, each reads bits or
  // positions.
  LOOM_DEVICE void release_beside() {
    if constexpr (Ring::kHasBeside) {
      __syncwarp();
      if (lane_index() == 0) barrier_arrive(ring.beside_free(beside_place.stage()));
      beside_place.advance();
    }
  }
  LOOM_DEVICE void release_values() {
    if (leads()) barrier_arrive(ring.values_free(value_place.stage()));
    value_place.advance();
  }

  // Masks and functors; the factor that is left to the softmax. Where tiles are asked about, only
  // one that is full and not cut is spared anything: four forms took twice as long to compile as
  // two.
  template <bool partial>
  LOOM_DEVICE float apply_variant(const Item& item) {
    if constexpr (kAsksTiles) {
      if (item.walk.mask == TileMask::kFull && !item.is_cut())
        return apply_asking<false, false>(item);
      return apply_asking<true, true>(item);
    } else if constexpr (!partial && !kHasFunctors<Config> && !Ring::Mask::kUsed) {
      release_beside();
      return 1.0f;
    } else {
      return apply_asking<partial, true>(item);
    }
  }

  // `ask`: logits_mask about each pair.
  template <bool partial, bool ask>
  LOOM_DEVICE float apply_asking(const Item& item) {
    constexpr bool kMasks =
        partial || Config::kCustomMask || (Config::kHasLogitsMask && ask) || !Config::kSoftmax;
    const Kept& kept = *item.kept;
    const int* beside = ring.beside(beside_place.stage());
    const KvColumns<Config> columns{args, kept.request, beside, item.walk.position};
    const typename Ring::Mask mask(beside, columns, kept.work);
    float left = 1.0f;
    apply_variant_to<Config, Variant, partial, ask>(logits[0], variant, plan, kept.request,
                                                    kept.work, item.bounds.end, columns, 0,
                                                    row_begin(), mask, kMasks ? nullptr : &left);
    release_beside();
    if (left > 0.0f) return left;
      // The maximum is taken before the factor.
#pragma unroll
    for (int j = 0; j < kLogits; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) logits[0][j][e] *= left;
    }
    return 1.0f;
  }

  // Waits for an item's queries, and with them for what is kept of it.
  LOOM_DEVICE Item open(const Kept& kept) {
    barrier_wait(ring.queries_full(query_place.stage()), query_place.parity());
    const KvBounds bounds = kv_bounds<Config, Class>(plan, kept.request, kept.work);
    return {&kept, bounds, TileWalk<Config, Class>(bounds, tiles),
            softmax_factor<Config>(plan, args, kept.work)};
  }

  // Logits of an item's first tile to weights, with a state of its own: that of the item before may
  // still be wanted.
  LOOM_DEVICE void fold_first(const Item& item, SoftmaxState<1>& fresh) {
    float factor = item.factor;
    if (Config::kCausal || kAsksTiles || item.is_cut()) {
      factor *= apply_variant<true>(item);
    } else {
      factor *= apply_variant<false>(item);
    }
    float by[1][2];
    if constexpr (Config::kSoftmax) fresh.fold_logits(by, logits, factor);
  }

  LOOM_DEVICE void begin(Item& item) {
    clear(logits);  // accumulators of no product yet would be written behind products_begin()
    hold(logits[0]);
    await_keys();
    products_begin();
    multiply_queries();
    products_wait<0>();
    hold(logits[0]);
    release_keys();
    fold_first(item, state);
    pack_weights(weights, logits[0], Element{});
    item.walk.advance(tiles);
  }

  // The keys of a tile beside the values of the one before.
  template <bool partial>
  LOOM_DEVICE void step(Item& item) {
    await_keys();
    Crew::await_turn();
    products_begin();
    multiply_queries();
    await_values();
    multiply_values();
    Crew::end_turn();
    products_wait<1>();
    hold(logits[0]);
    release_keys();
    const float factor = item.factor * apply_variant<partial>(item);
    float by[1][2];
    bool shrinks = false;
    if constexpr (Config::kSoftmax) shrinks = state.fold_logits(by, logits, factor);
    products_wait<0>();
    hold(values[0]);
    release_values();
    if (shrinks) state.shrink_values(by, values);
    pack_weights(weights, logits[0], Element{});
    item.walk.advance(tiles);
  }

  LOOM_DEVICE void multiply_rest(Item& item) {
    if constexpr (Config::kCausal && !kAsksTiles) {
#pragma unroll 1
      while (item.walk.left > 0 && item.walk.position + Class::kKv > item.bounds.full_end)
        step<true>(item);
    }
    if constexpr (!kAsksTiles) {
#pragma unroll 1
      while (item.walk.left > 0 && !item.is_cut()) step<false>(item);
    }
    // What a window cuts; in a tile of rows that do not exist functors ask about every tile, and of
    // listed blocks all are asked about where keys of the last do not exist.
    if constexpr (Config::kWindow || Config::kBsr || kHasFunctors<Config>) {
#pragma unroll 1
      while (item.walk.left > 0) step<true>(item);
    }
  }

  // The keys of the next item's first tile beside the last values of this one: between items the
  // products do not stand still.
  LOOM_DEVICE void step_over(Item& next, SoftmaxState<1>& fresh) {
    await_keys();
    Crew::await_turn();
    products_begin();
    multiply_queries();
    await_values();
    multiply_values();
    Crew::end_turn();
    products_wait<1>();
    hold(logits[0]);
    release_keys();
    fold_first(next, fresh);
    products_wait<0>();
    hold(values[0]);
    release_values();
    pack_weights(weights, logits[0], Element{});
    next.walk.advance(tiles);
  }

  LOOM_DEVICE void end() {
    await_values();
    products_begin();
    multiply_values();
    products_wait<0>();
    hold(values[0]);
    release_values();
  }

  LOOM_DEVICE void release_queries() {
    if (leads()) barrier_arrive(ring.queries_free(query_place.stage()));
    query_place.advance();
  }

  LOOM_DEVICE void run(int items) {
    if (items == 0) return;
    typename Ring::KeptPlace kept_place;
    Item item = open(ring.kept(0));
    clear(values);
    begin(item);
#pragma unroll 1
    for (int i = 1;; ++i) {
      multiply_rest(item);
      release_queries();
      const int slot = kept_place.stage();
      kept_place.advance();
      SoftmaxState<1> fresh;
      if (i < items) {
        item = open(ring.kept(kept_place.stage()));
        step_over(item, fresh);
      } else {
        end();
      }
      close(slot);
      if (i >= items) return;
      clear(values);
      state = fresh;
    }
  }

  // One item after the other: of products of 256 columns the copy that begins an item beside the
  // end of the last is a third of the compile.
  LOOM_DEVICE void run_apart(int items) {
    typename Ring::KeptPlace kept_place;
#pragma unroll 1
    for (int i = 0; i < items; ++i) {
      Item item = open(ring.kept(kept_place.stage()));
      clear(values);
      state = SoftmaxState<1>();
      begin(item);
      multiply_rest(item);
      release_queries();
      end();
      close(kept_place.stage());
      kept_place.advance();
    }
  }

  LOOM_DEVICE void close(int slot) {
    finish(ring.kept(slot));
    __syncwarp();
    if (lane_index() == 0) barrier_arrive(ring.kept_free(slot));
  }

  LOOM_DEVICE void finish(const Kept& kept) {
    state.finish();
    const Output output{args, variant, kept.request, kept.work};
    const ItemRows<Config, Variant> sink(output, plan, Class::kQ);
    const float value_scale = kv_scale<Config>(args.v_scale, kept.work);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = row_begin() + fragment_row(2 * r);
      const float scale = value_scale * (Config::kSoftmax ? inverse_sum(state.l[0][r]) : 1.0f);
      const float lse = state_lse(state.m[0][r], state.l[0][r]);
      if ((lane_index() & 3) == 0 && output.exists(row)) sink.store_lse(row, lse);
      if (!kFinishes<Config> && sink.alone) {
        store_packed(output, r, row, scale);
      } else {
        store_wide(sink, r, row, scale, lse);
      }
    }
    if (!sink.alone) merge_if_last<Config, Crew>(plan, output, Class::kQ, ring.scratch());
  }

  // A quad holds two columns of eight a lane; turned over, a lane has all eight of one fragment.
  LOOM_DEVICE void store_packed(const Output& output, int r, int row, float scale) {
    u32 pairs[kValues / 4][4];
#pragma unroll
    for (int j = 0; j < kValues; ++j) {
      const float(&pair)[4] = values[0][j];
      pairs[j / 4][j % 4] = pack2(pair[2 * r] * scale, pair[2 * r + 1] * scale, Element{});
    }
#pragma unroll
    for (int j = 0; j < kValues / 4; ++j) transpose_quad(pairs[j]);
    if (!output.exists(row)) return;
#pragma unroll
    for (int j = 0; j < kValues / 4; ++j) {
      output.store(row, 8 * (4 * j + (lane_index() & 3)),
                   make_uint4(pairs[j][0], pairs[j][1], pairs[j][2], pairs[j][3]));
    }
  }
  LOOM_DEVICE void store_wide(const ItemRows<Config, Variant>& sink, int r, int row, float scale,
                              float lse) {
#pragma unroll
    for (int j = 0; j < kValues; j += 4) {
      float even[4];
      float odd[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        even[i] = values[0][j + i][2 * r] * scale;
        odd[i] = values[0][j + i][2 * r + 1] * scale;
      }
      transpose_quad(even);
      transpose_quad(odd);
      float x[8];
#pragma unroll
      for (int i = 0; i < 4; ++i) x[2 * i] = even[i], x[2 * i + 1] = odd[i];
      if (sink.output.exists(row)) sink.store(row, 8 * (j + (lane_index() & 3)), x, lse);
    }
  }
};

template <class Config, template <int> class TileClass, class Variant>
LOOM_DEVICE void attention_wgmma(const MappedAttentionArgs& args) {
  using Class = TileClass<0>;
  using Ring = MappedRing<Config, Class>;
  using Registers = RoleRegisters<Config, Class>;
  constexpr int kProductsEnd = (Ring::kConsumers + 1) * kGroupThreads;
  static_assert(Config::kClassCount == 1 &&
                    Config::kThreads == kProductsEnd + (Registers::kPasses ? kGroupThreads : 0),
                "a warpgroup for 64 rows, one that copies, and one for row functors");
  extern __shared__ __align__(1024) unsigned char shared[];  // whole swizzle patterns
  const AttentionArgs& attention = args.attention;
  const PlanHeader& plan = *reinterpret_cast<const PlanHeader*>(attention.workspace);
  const CtaQueue queue =
      reinterpret_cast<const CtaQueue*>(attention.workspace + kQueuesOffset)[blockIdx.x];
  const Ring ring{shared};
  if (threadIdx.x == 0) ring.init();
  __syncthreads();
  if (threadIdx.x < kGroupThreads) {
    give_registers<Registers::kCopies>();
    const int items = queue.end - queue.begin;
    if (warp_index() == 0)
      MappedCopies<Config, Class>{args, plan, ring, {}, {}, {}, {ring, {}}}.copy_queue(items);
    if (warp_index() == 1) fetch_queue<Config, Class, Variant>(ring, attention, plan, queue);
    if constexpr (Ring::kGathers) {
      if (threadIdx.x >= GatherCrew::kFirst)
        GatheredCopies<Config, Class>{attention, plan, ring, {}, {}, {}, {}, {ring, {}}}.copy_queue(
            items);
    }
  } else if (!Registers::kPasses || threadIdx.x < kProductsEnd) {
    take_registers<Registers::kProducts>();
    const Variant variant(plan, attention);
    GroupRows<Config, Class, Variant> rows{attention, plan, variant, ring,      {},
                                           {},        {},   {},      {ring, {}}};
    Consumers<Config>::begin_turns();
    if constexpr (Config::kHeadDimVo > 128) {
      rows.run_apart(queue.end - queue.begin);
    } else {
      rows.run(queue.end - queue.begin);
    }
  } else if constexpr (Registers::kPasses) {
    give_registers<Registers::kRows>();
    const Variant variant(plan, attention);
    RowPass<Config, Class, Variant>{attention, plan, variant, ring, {}, {}, {}, {ring, {}}}.run(
        queue.end - queue.begin);
  }
}

}  // namespace loom
