// SPDX-License-Identifier: Apache-2.0
// functors: a variant's element functors alone, one thread, one logit at a time. The reference runs
// it on the simulated device for variants that have no float64 twin; no engine launches it.
#pragma once

#include "loom/ops.cuh"

namespace loom {

template <class Config, class Variant>
LOOM_DEVICE void functors(const FunctorArgs& args) {
  const PlanHeader& plan = *reinterpret_cast<const PlanHeader*>(args.attention.workspace);
  const Variant variant(plan, args.attention);
  for (int i = 0; i < args.count; ++i) {
    const FunctorPlace place = args.places[i];
    float x = args.logits[i];
    int keep = 1;
    if constexpr (Config::kHasLogitsTransform) {
      x = variant.logits_transform(x, place.batch, place.q_pos, place.kv_pos, place.q_head,
                                   place.kv_head, place.q_len, place.kv_len);
    }
    if constexpr (Config::kHasLogitsMask) {
      keep = variant.logits_mask(place.batch, place.q_pos, place.kv_pos, place.q_head,
                                 place.kv_head, place.q_len, place.kv_len);
    }
    args.transformed[i] = x;
    args.kept[i] = keep;
  }
}

}  // namespace loom
