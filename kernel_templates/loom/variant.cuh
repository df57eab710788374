// SPDX-License-Identifier: Apache-2.0
// Applies the rendered variant to a block of logits: transform, then mask. What a spec does not use
// costs nothing.
#pragma once

#include "loom/tile.cuh"

namespace loom {

// Whether logits pass through the variant's text at all.
template <class Config>
constexpr bool kHasFunctors =
    Config::kHasLogitsTransform || Config::kHasLogitsMask || !Config::kSoftmax;

// The KV range that a query tile can see at all, and the part of it where every row sees every key.
struct KvBounds {
  int begin;       // first tile to walk: a multiple of the KV tile
  int end;         // first token that no row sees
  int full_begin;  // tiles within [full_begin, full_end) need no structured mask
  int full_end;
  int shift;   // query position = token + shift: the last query faces the last key
  int window;  // tokens; -1 is off
};

template <class Config, class Class>
LOOM_DEVICE KvBounds kv_bounds(const PlanHeader& plan, const RequestRow& request,
                               const WorkItem& work) {
  KvBounds bounds;
  bounds.shift = request.kv_len - request.qo_len;
  bounds.window = -1;
  if constexpr (Config::kWindow)
    bounds.window = Config::kWindowRuntime ? plan.window_left : Config::kWindowLeft;
  const int first = work.q_row / Config::kGroupSize + bounds.shift;
  const int last_row = (work.q_row + Class::kQ - 1) / Config::kGroupSize;
  const int last = min(last_row, request.qo_len - 1) + bounds.shift;
  bounds.begin = work.kv_begin;
  bounds.end = work.kv_end;
  bounds.full_begin = work.kv_begin;
  bounds.full_end = work.kv_end;
  if constexpr (Config::kCausal) {
    bounds.end = min(bounds.end, last + 1);
    bounds.full_end = min(bounds.full_end, first + 1);
  }
  // Functors may index arrays by position, so they are never asked about rows that do not exist: in
  // a tile with such rows no KV tile counts as full.
  if (kHasFunctors<Config> && last_row >= request.qo_len) bounds.full_end = bounds.begin;
  if (Config::kWindow && bounds.window >= 0) {
    const int lowest = max(first - bounds.window, 0);
    bounds.begin = max(bounds.begin, lowest / Class::kKv * Class::kKv);
    bounds.full_begin = max(bounds.full_begin, last - bounds.window);
  }
  return bounds;
}

// One 16-row block of logits against `fragments * 8` keys from kv_begin. `partial`: the structured
// masks cut this tile. Leaves base-2-scaled inputs of the softmax: raw products where there is no
// transform (the caller folds the scale).
template <class Config, class Variant, int fragments>
LOOM_DEVICE void apply_variant(float (&logits)[fragments][4], const Variant& variant,
                               const PlanHeader& plan, const RequestRow& request,
                               const WorkItem& work, const KvBounds& bounds, int row_begin,
                               int kv_begin, bool partial) {
  if (!kHasFunctors<Config> && !partial) return;
  const float masked = Config::kSoftmax ? negative_infinity() : 0.0f;
#pragma unroll
  for (int j = 0; j < fragments; ++j) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int packed = work.q_row + row_begin + fragment_row(e);
      const int q_pos = packed / Config::kGroupSize + bounds.shift;
      const int q_head = work.kv_head * Config::kGroupSize + packed % Config::kGroupSize;
      const int kv_pos = kv_begin + fragment_column(j, e);
      bool keep = true;
      if (partial) {
        keep = kv_pos < bounds.end;
        if constexpr (kHasFunctors<Config>) {
          keep = keep && packed / Config::kGroupSize < request.qo_len;
        }
        if constexpr (Config::kCausal) keep = keep && kv_pos <= q_pos;
        if constexpr (Config::kWindow) {
          keep = keep && (bounds.window < 0 || kv_pos >= q_pos - bounds.window);
        }
      }
      if constexpr (Config::kHasLogitsMask) {
        keep = keep && variant.logits_mask(work.request, q_pos, kv_pos, q_head, work.kv_head,
                                           request.qo_len, request.kv_len);
      }
      float x = logits[j][e];
      if constexpr (kHasFunctors<Config>) x *= plan.scale;
      if constexpr (Config::kHasLogitsTransform) {
        if (keep) {
          x = variant.logits_transform(x, work.request, q_pos, kv_pos, q_head, work.kv_head,
                                       request.qo_len, request.kv_len);
        }
      }
      if constexpr (kHasFunctors<Config> && Config::kSoftmax) x *= kLog2E;
      logits[j][e] = keep ? x : masked;
    }
  }
}

// What fold() has to multiply logits by.
template <class Config>
LOOM_DEVICE float softmax_factor(const PlanHeader& plan) {
  return Config::kHasLogitsTransform || Config::kHasLogitsMask ? 1.0f : plan.scale * kLog2E;
}

}  // namespace loom
