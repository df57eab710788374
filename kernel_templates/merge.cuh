// SPDX-License-Identifier: Apache-2.0
// merge: attention states of the same rows become one (the operator of the FlashInfer paper,
// section 2.2), in state order. Eight lanes share a row. A state with LSE -inf is empty; +inf,
// which no kernel here emits, counts as empty too.
#pragma once

#include "loom/ops.cuh"

namespace loom {

constexpr int kMergeLanes = 8;

template <class Config>
LOOM_DEVICE float natural_lse(const MergeArgs& args, i64 offset, int state) {
  const float lse = args.lse_in[offset + state * args.lse_in_state_stride];
  return lse == -negative_infinity() ? negative_infinity() : lse;
}

template <class Config>
LOOM_DEVICE void merge(const MergeArgs& args) {
  using Element = typename Config::Element;
  const i64 row = (static_cast<i64>(blockIdx.x) * Config::kThreads + threadIdx.x) / kMergeLanes;
  if (row >= static_cast<i64>(args.tokens) * args.heads) return;
  const int token = static_cast<int>(row / args.heads);
  const int head = static_cast<int>(row % args.heads);
  const i64 lse_row = token * args.lse_in_token_stride + head * args.lse_in_head_stride;
  const Element* in = static_cast<const Element*>(args.o_in) + token * args.o_in_token_stride +
                      head * args.o_in_head_stride;
  Element* out =
      static_cast<Element*>(args.o) + token * args.o_token_stride + head * args.o_head_stride;

  float largest = negative_infinity();
  for (int s = 0; s < args.states; ++s)
    largest = fmaxf(largest, natural_lse<Config>(args, lse_row, s));
  float total = 0.0f;
  for (int s = 0; s < args.states; ++s) {
    const float lse = natural_lse<Config>(args, lse_row, s);
    total += lse == negative_infinity() ? 0.0f : exp2((lse - largest) * kLog2E);
  }
  const float inverse = total == 0.0f ? 0.0f : 1.0f / total;
  const int lane = static_cast<int>(threadIdx.x) % kMergeLanes;
  if (lane == 0 && args.lse != nullptr) {
    args.lse[token * args.lse_token_stride + head * args.lse_head_stride] =
        total == 0.0f ? negative_infinity() : largest + log2(total) * kLn2;
  }
  for (int dim = 2 * lane; dim < Config::kHeadDimVo; dim += 2 * kMergeLanes) {
    float x = 0.0f;
    float y = 0.0f;
    for (int s = 0; s < args.states; ++s) {
      const float lse = natural_lse<Config>(args, lse_row, s);
      if (lse == negative_infinity())
        continue;  // an empty state's values never count, NaN included
      const float weight = exp2((lse - largest) * kLog2E) * inverse;
      const Element* from = in + s * args.o_in_state_stride + dim;
      x = fmaf(weight, to_float(from[0]), x);
      y = fmaf(weight, to_float(from[1]), y);
    }
    *reinterpret_cast<u32*>(out + dim) = pack2(x, y, Element{});
  }
}

}  // namespace loom
