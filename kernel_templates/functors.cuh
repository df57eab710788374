// SPDX-License-Identifier: Apache-2.0
// functors: a variant's functors alone, in one warp: element functors one element a lane, row
// functors one fp32 row at a time. The reference runs it on the simulated device for variants that
// have no float64 twin; no engine launches it.
#pragma once

#include "loom/ops.cuh"
#include "loom/row.cuh"

namespace loom {

template <class Config, class Variant>
LOOM_DEVICE void run_logits(const Variant& variant, const FunctorArgs& args) {
  for (int i = lane_index(); i < args.count; i += 32) {
    const FunctorPlace place = args.places[i];
    float x = args.in[i];
    int keep = 1;
    if constexpr (Config::kHasLogitsTransform) {
      x = variant.logits_transform(Logit{x, 1.0f}, place.batch, place.q_pos,
                                   KvPosition{{place.kv_pos, 0}}, place.q_head, place.kv_head,
                                   place.q_len, place.kv_len);
    }
    if constexpr (Config::kHasLogitsMask) {
      keep = variant.logits_mask(place.batch, place.q_pos, place.kv_pos, place.q_head,
                                 place.kv_head, place.q_len, place.kv_len);
    }
    args.out[i] = x;
    args.kept[i] = keep;
  }
}

template <class Variant>
LOOM_DEVICE void run_outputs(const Variant& variant, const FunctorArgs& args) {
  for (int i = lane_index(); i < args.count; i += 32) {
    const FunctorPlace place = args.places[i];
    args.out[i] =
        variant.output_transform(args.in[i], args.lse[i], place.dim, place.batch, place.q_pos,
                                 place.q_head, place.kv_head, place.q_len, place.kv_len);
  }
}

template <int dim, class Transform>
LOOM_DEVICE void run_rows(const FunctorArgs& args, Transform&& transform) {
  for (int r = 0; r < args.count; ++r) {
    const FunctorPlace place = args.places[r];
    const float* in = args.in + static_cast<i64>(r) * dim;
    float* out = args.out + static_cast<i64>(r) * dim;
    Row<dim> row{};
    row.map([&](int i, float) { return in[i]; });
    transform(row, RowArgs{place.batch, place.q_pos, place.q_head, place.q_len, place.kv_len});
    row.map([&](int i, float x) { return out[i] = x; });
  }
}

template <class Config, class Variant>
LOOM_DEVICE void functors(const FunctorArgs& args) {
  constexpr int kQk = Config::kHeadDimQk;
  constexpr int kVo = Config::kHeadDimVo;
  const PlanHeader& plan = *reinterpret_cast<const PlanHeader*>(args.attention.workspace);
  const Variant variant(plan, args.attention);
  if (args.kind == FunctorKind::kLogits) run_logits<Config>(variant, args);
  if constexpr (Config::kHasOutputTransform) {
    if (args.kind == FunctorKind::kOutputs) run_outputs(variant, args);
  }
  if constexpr (Config::kHasQueryTransform) {
    if (args.kind == FunctorKind::kQueries)
      run_rows<kQk>(args, [&](Row<kQk>& x, const RowArgs& a) { variant.query_transform(x, a); });
  }
  if constexpr (Config::kHasKeyTransform) {
    if (args.kind == FunctorKind::kKeys)
      run_rows<kQk>(args, [&](Row<kQk>& x, const RowArgs& a) { variant.key_transform(x, a); });
  }
  if constexpr (Config::kHasValueTransform) {
    if (args.kind == FunctorKind::kValues)
      run_rows<kVo>(args, [&](Row<kVo>& x, const RowArgs& a) { variant.value_transform(x, a); });
  }
}

}  // namespace loom
