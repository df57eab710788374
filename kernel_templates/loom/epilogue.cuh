// SPDX-License-Identifier: Apache-2.0
// From finished rows to memory: the output of a tile that one item computed alone, or a partial
// state and the merge by whoever arrives last.
//
// The merge is the one protocol between CTAs: partial stores -> CTA barrier -> fence -> counter ->
// fence -> CTA barrier -> loads of all partials, in plan order, so the same plan gives the same
// bits whoever comes last. No co-residency is needed: nobody waits. The counter goes back to 0, so
// a plan can be replayed.
#pragma once

#include "loom/finish.cuh"
#include "loom/shared.cuh"
#include "loom/softmax.cuh"
#include "loom/variant.cuh"

namespace loom {

LOOM_DEVICE void load_eight(float (&x)[8], const float* from) {
  const float4 low = reinterpret_cast<const float4*>(from)[0];
  const float4 high = reinterpret_cast<const float4*>(from)[1];
  x[0] = low.x, x[1] = low.y, x[2] = low.z, x[3] = low.w;
  x[4] = high.x, x[5] = high.y, x[6] = high.z, x[7] = high.w;
}

// The rows of one output tile. Whatever is stored here is final, so this is where sinks and
// output_transform come in: once a row, and never on a partial state.
template <class Config, class Variant>
struct OutputRows {
  const AttentionArgs& args;
  const Variant& variant;
  const RequestRow& request;
  const Work& work;

  LOOM_DEVICE bool exists(int row) const {
    return (work.item.q_row + row) / Config::kGroupSize < request.q_end;
  }
  LOOM_DEVICE i64 token(int row) const {
    return static_cast<i64>(request.qo_begin) + (work.item.q_row + row) / Config::kGroupSize;
  }
  LOOM_DEVICE i64 head(int row) const {
    return static_cast<i64>(work.kv_head()) * Config::kGroupSize +
           (work.item.q_row + row) % Config::kGroupSize;
  }

  // Eight elements from `dim`.
  LOOM_DEVICE void store(int row, int dim, uint4 bits) const {
    u16* o = static_cast<u16*>(args.o) + token(row) * args.o_token_stride +
             head(row) * args.o_head_stride;
    *reinterpret_cast<uint4*>(o + dim) = bits;
  }
  // `base2`: the row's LSE, read where kFinishes only.
  LOOM_DEVICE void store(int row, int dim, float (&x)[8], float base2) const {
    if constexpr (kFinishes<Config>) finish_row<Config>(x, variant, request, work, row, dim, base2);
    store(row, dim, pack8(x, typename Config::Element{}));
  }
  LOOM_DEVICE void store_lse(int row, float base2) const {
    if (Config::kSoftmax && args.lse != nullptr) {
      args.lse[token(row) * args.lse_token_stride + head(row) * args.lse_head_stride] =
          with_sink<Config>(variant, static_cast<int>(head(row)), base2).lse * kLn2;
    }
  }
};

// The rows of one partial state in the workspace: normalised values and base-2 LSE, fp32.
template <class Config>
struct PartialRows {
  float* o;
  float* lse;

  LOOM_DEVICE PartialRows(const AttentionArgs& args, const PlanHeader& plan, int first_row)
      : o(reinterpret_cast<float*>(args.workspace + plan.partial_o_offset) +
          static_cast<i64>(first_row) * Config::kHeadDimVo),
        lse(reinterpret_cast<float*>(args.workspace + plan.partial_lse_offset) + first_row) {}

  LOOM_DEVICE void store(int row, int dim, const float (&x)[8]) const {
    float4* to = reinterpret_cast<float4*>(o + static_cast<i64>(row) * Config::kHeadDimVo + dim);
    to[0] = make_float4(x[0], x[1], x[2], x[3]);
    to[1] = make_float4(x[4], x[5], x[6], x[7]);
  }
  LOOM_DEVICE void store_lse(int row, float base2) const {
    if constexpr (Config::kSoftmax) lse[row] = base2;
  }
};

// Where an item's finished rows go: to the output, or where several items share it to a partial
// state. One store loop for both: the choice costs a predicate, a second loop cost a tenth of the
// compile.
template <class Config, class Variant>
struct ItemRows {
  const OutputRows<Config, Variant>& output;
  PartialRows<Config> partial;
  bool alone;

  // `tile_rows`: of the item's class.
  LOOM_DEVICE ItemRows(const OutputRows<Config, Variant>& output, const PlanHeader& plan,
                       int tile_rows)
      : output(output),
        partial(output.args, plan, output.work.partial_row(tile_rows)),
        alone(output.work.is_alone()) {}

  LOOM_DEVICE void store(int row, int dim, float (&x)[8], float base2) const {
    if (alone) {
      output.store(row, dim, x, base2);
    } else {
      partial.store(row, dim, x);
    }
  }
  LOOM_DEVICE void store_lse(int row, float base2) const {
    if (alone) {
      output.store_lse(row, base2);
    } else {
      partial.store_lse(row, base2);
    }
  }
};

// Merges states of the same `rows` rows that parts of a CTA left in shared memory, in their order,
// and stores the rows. State w of a row is row w * stride + row of `blocks` (fp32 values that are
// not divided by their sum, rows of `row_words` words), m and l (loom/softmax.cuh). REQUIRES: a
// barrier before.
template <class Config, int rows, int states, class Variant>
LOOM_DEVICE void store_shared_states(const OutputRows<Config, Variant>& output,
                                     const ItemRows<Config, Variant>& sink, const float* blocks,
                                     const float* m, const float* l, int stride, int row_words) {
  constexpr int kChunks = Config::kHeadDimVo / 8;
  for (int i = static_cast<int>(threadIdx.x); i < rows * kChunks; i += Config::kThreads) {
    const int row = i / kChunks;
    const int dim = i % kChunks * 8;
    float largest = negative_infinity();
#pragma unroll
    for (int w = 0; w < states; ++w) largest = fmaxf(largest, m[w * stride + row]);
    float sum = 0.0f;
    float x[8] = {};
#pragma unroll
    for (int w = 0; w < states; ++w) {
      const float weight = Config::kSoftmax ? state_weight(m[w * stride + row], largest) : 1.0f;
      float part[8];
      load_eight(part, blocks + (w * stride + row) * row_words + dim);
      sum = fmaf(weight, l[w * stride + row], sum);
#pragma unroll
      for (int e = 0; e < 8; ++e) x[e] = fmaf(weight, part[e], x[e]);
    }
    const float inverse = kv_scale<Config>(output.args.v_scale, output.work) *
                          (Config::kSoftmax ? inverse_sum(sum) : 1.0f);
#pragma unroll
    for (int e = 0; e < 8; ++e) x[e] *= inverse;
    if (!output.exists(row)) continue;
    const float lse = state_lse(largest, sum);
    sink.store(row, dim, x, lse);
    if (dim == 0) sink.store_lse(row, lse);
  }
}

// Folds the states of one row in their order. x receives the merged values of eight dims. The
// maximum is a running one, so that a state's values need not wait for the LSEs of all.
template <class Config>
LOOM_DEVICE float merge_row(float (&x)[8], const PartialRows<Config>& partial,
                            StateRuns<Config> runs, int row, int dim) {
  float largest = negative_infinity();
  float total = 0.0f;
#pragma unroll
  for (int e = 0; e < 8; ++e) x[e] = 0.0f;
  for (; runs.left > 0; runs.advance()) {
#pragma unroll 4
    for (int c = 0; c < runs.chunks; ++c) {
      const int from = runs.first + c * runs.stride + row;
      float part[8];
      load_eight(part, partial.o + static_cast<i64>(from) * Config::kHeadDimVo + dim);
      float kept = 1.0f;
      float weight = 1.0f;
      if constexpr (Config::kSoftmax) {
        const float lse = partial.lse[from];
        const float before = largest;
        largest = fmaxf(largest, lse);
        kept = state_weight(before, largest);
        weight = state_weight(lse, largest);
        total = fmaf(kept, total, weight);
      }
#pragma unroll
      for (int e = 0; e < 8; ++e) x[e] = fmaf(weight, part[e], kept * x[e]);
    }
  }
  if constexpr (!Config::kSoftmax) return 0.0f;
  const float inverse = inverse_sum(total);
#pragma unroll
  for (int e = 0; e < 8; ++e) x[e] *= inverse;
  return state_lse(largest, total);
}

// Writes an output tile of at most `tile_rows` rows from its partial states, as one of `threads`
// that share the work.
template <class Config, class Variant>
LOOM_DEVICE void merge_tile(const PlanHeader& plan, const OutputRows<Config, Variant>& output,
                            const StateRuns<Config>& runs, int tile_rows, int thread, int threads) {
  const PartialRows<Config> partial(output.args, plan, 0);
  constexpr int kChunks = Config::kHeadDimVo / 8;
#pragma unroll 1
  for (int i = thread; i < tile_rows * kChunks; i += threads) {
    const int row = i / kChunks;
    const int dim = i % kChunks * 8;
    if (!output.exists(row)) break;
    float x[8];
    const float lse = merge_row<Config>(x, partial, runs, row, dim);
    output.store(row, dim, x, lse);
    if (dim == 0) output.store_lse(row, lse);
  }
}

// Announces this item's partial state to its output tile, or that of a shared prefix to those of
// all its members; the last arriver at a tile writes it: all threads together, or of members a warp
// each (one member after the other took 4 us each, 32 of them in one CTA). `tile_rows`: of the
// item's class. One copy of it serves all classes of a kernel: it is not on the hot path and a
// sixth of a class's code.
// REQUIRES: every thread of the crew calls it after its partial stores; nobody uses the shared
// memory at `scratch`.
template <class Config, class Crew, class Variant>
LOOM_DEVICE void merge_if_last(const PlanHeader& plan, const OutputRows<Config, Variant>& output,
                               int tile_rows, int* scratch) {
  const AttentionArgs& args = output.args;
  const Work& work = output.work;
  const bool shared = is_shared<Config>(output.request);
  const SharedMember* members =
      plan_table<SharedMember>(args, plan.shared_members_offset) + output.request.qo_begin;
  const int tiles = shared ? output.request.member_count : 1;
  const auto merge_of = [&](int i) {
    return shared ? members[i].merge + work.kv_head() : work.merge();
  };
  int* counters = reinterpret_cast<int*>(args.workspace + plan.counters_offset);
  Crew::sync();
#pragma unroll 1
  for (int i = Crew::thread(); i < tiles; i += Crew::kThreads) {
    fence_gpu();
    scratch[i] = counter_add(counters + merge_of(i), 1);
    fence_gpu();
  }
  Crew::sync();
  const int thread = shared ? lane_index() : Crew::thread();
  const int threads = shared ? 32 : Crew::kThreads;
#pragma unroll 1
  for (int i = shared ? Crew::warp() : 0; i < tiles; i += Crew::kThreads / 32) {
    const MergeTile tile = plan_table<MergeTile>(args, plan.merges_offset)[merge_of(i)];
    if (scratch[i] != tile.count - 1) continue;
    const RequestRow& request =
        shared ? plan_table<RequestRow>(args, plan.requests_offset)[members[i].request]
               : output.request;
    // A member's rows are one tile, from its first on, as those of the shared item are.
    merge_tile<Config>(plan, OutputRows<Config, Variant>{args, output.variant, request, work},
                       StateRuns<Config>(args, tile, work.kv_head(), plan.lanes * tile_rows),
                       tile_rows, thread, threads);
    if (thread == 0) counters[merge_of(i)] = 0;
  }
}

}  // namespace loom
