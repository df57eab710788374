// SPDX-License-Identifier: Apache-2.0
// What happens to a row once, after its last merge: the sink, then output_transform. Neither may
// ever see a partial state, or a split row would be finished once for each of its parts.
#pragma once

#include "loom/ops.cuh"
#include "loom/work.cuh"

namespace loom {

// Whether values change between the last merge and their store.
template <class Config>
constexpr bool kFinishes = Config::kHasSink || Config::kHasOutputTransform;

struct SinkedRow {
  float factor;  // of the values
  float lse;     // base 2
};

// The row with its sink, a logit that has no value. Without keys the sink alone is the LSE, and the
// values stay 0.
template <class Config, class Variant>
LOOM_DEVICE SinkedRow with_sink(const Variant& variant, int q_head, float base2) {
  if constexpr (!Config::kHasSink) {
    return {1.0f, base2};
  } else {
    const float sink = variant.sink_of(q_head) * kLog2E;
    const float top = fmaxf(base2, sink);
    if (top == negative_infinity()) return {1.0f, base2};  // neither keys nor a sink
    const float kept = exp2(base2 - top);
    const float total = kept + exp2(sink - top);
    return {kept / total, top + log2(total)};
  }
}

// Eight values of a row from `dim`; `row` counts within the item's tile.
template <class Config, class Variant>
LOOM_DEVICE void finish_row(float (&x)[8], const Variant& variant, const RequestRow& request,
                            const Work& work, int row, int dim, float base2) {
  const int packed = work.item.q_row + row;
  const int q_head = work.kv_head() * Config::kGroupSize + packed % Config::kGroupSize;
  const SinkedRow sinked = with_sink<Config>(variant, q_head, base2);
#pragma unroll
  for (int e = 0; e < 8; ++e) {
    if constexpr (Config::kHasSink) x[e] *= sinked.factor;
    if constexpr (Config::kHasOutputTransform) {
      const int q_pos = packed / Config::kGroupSize + request.kv_len - request.qo_len;
      x[e] = variant.output_transform(x[e], Config::kSoftmax ? sinked.lse * kLn2 : 0.0f, dim + e,
                                      request.batch, q_pos, q_head, work.kv_head(), request.qo_len,
                                      request.kv_len);
    }
  }
}

}  // namespace loom
