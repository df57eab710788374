// SPDX-License-Identifier: Apache-2.0
// Applies the rendered variant to a block of logits: transform, then mask. What a spec does not use
// costs nothing.
#pragma once

#include "loom/columns.cuh"
#include "loom/work.cuh"

namespace loom {

// Whether logits pass through the variant's text at all.
template <class Config>
constexpr bool kHasFunctors =
    Config::kHasLogitsTransform || Config::kHasLogitsMask || !Config::kSoftmax;

template <class Config>
constexpr bool kScalesLogits = Config::kHasLogitsTransform || !Config::kSoftmax;

// The KV range that a query tile can see at all, and the part of it where every row sees every key.
struct KvBounds {
  int begin;       // first tile to walk: a multiple of the KV tile
  int end;         // first token that no row sees
  int full_begin;  // tiles within [full_begin, full_end) need no structured mask
  int full_end;
};

// Query position = token + shift: the last query faces the last key.
LOOM_DEVICE int query_shift(const RequestRow& request) {
  return request.kv_len - request.qo_len;
}

// Tokens; -1 is off.
template <class Config>
LOOM_DEVICE int window_left(const PlanHeader& plan) {
  return Config::kWindowRuntime ? plan.window_left : Config::kWindowLeft;
}

template <class Config, class Class>
LOOM_DEVICE KvBounds kv_bounds(const PlanHeader& plan, const RequestRow& request,
                               const Work& work) {
  KvBounds bounds;
  const int shift = query_shift(request);
  const int first = work.item.q_row / Config::kGroupSize + shift;
  const int last_row = (work.item.q_row + Class::kQ - 1) / Config::kGroupSize;
  const int last = min(last_row, request.q_end - 1) + shift;
  bounds.begin = work.item.kv_begin;
  bounds.end = work.item.kv_end;
  bounds.full_begin = work.item.kv_begin;
  bounds.full_end = work.item.kv_end;
  // What a position says about a place in the walk holds for consecutive keys only: a tile of
  // listed blocks is full where all keys exist and no mask asks.
  if constexpr (Config::kBsr) {
    const bool all_exist = request.kv_len % Config::kBlockColumns == 0;
    if (Config::kCausal || Config::kWindow || !all_exist) bounds.full_end = bounds.begin;
  } else if constexpr (Config::kCausal) {
    bounds.end = min(bounds.end, last + 1);
    bounds.full_end = min(bounds.full_end, first + 1);
  }
  // Functors may index arrays by position, so they are never asked about rows that do not exist: in
  // a tile with such rows no KV tile counts as full.
  if ((Config::kCustomMask && Config::kBsr) || (kHasFunctors<Config> && last_row >= request.q_end))
    bounds.full_end = bounds.begin;
  if (Config::kWindow && !Config::kBsr && window_left<Config>(plan) >= 0) {
    const int lowest = max(first - window_left<Config>(plan), 0);
    bounds.begin = max(bounds.begin, lowest / Class::kKv * Class::kKv);
    bounds.full_begin = max(bounds.full_begin, last - window_left<Config>(plan));
  }
  return bounds;
}

// What the numbers of a quantised cache are multiplied by: one factor for the tensor or one a head.
template <class Config>
LOOM_DEVICE float kv_scale(const float* scales, const Work& work) {
  if constexpr (Config::kKvScale == KvScale::kTensor) return scales[0];
  if constexpr (Config::kKvScale == KvScale::kHead) return scales[work.kv_head()];
  return 1.0f;
}

// Products of queries and stored keys to logits.
template <class Config>
LOOM_DEVICE float logit_scale(const PlanHeader& plan, const AttentionArgs& args, const Work& work) {
  return plan.scale * kv_scale<Config>(args.k_scale, work);
}

// A packed query row as masks and functors see it. The keys that the structured masks leave it are
// one range: two compares a logit.
struct LogitRow {
  int token;
  int q_pos;
  int q_head;
  int begin;
  int end;
};

template <class Config>
LOOM_DEVICE LogitRow logit_row(const PlanHeader& plan, const RequestRow& request, const Work& work,
                               int kv_end, int packed) {
  LogitRow row;
  row.token = packed / Config::kGroupSize;
  row.q_pos = row.token + query_shift(request);
  row.q_head = work.kv_head() * Config::kGroupSize + packed % Config::kGroupSize;
  row.end = Config::kBsr ? request.kv_len : kv_end;
  row.begin = 0;
  if constexpr (Config::kCausal) row.end = min(row.end, row.q_pos + 1);
  if (Config::kWindow && window_left<Config>(plan) >= 0)
    row.begin = row.q_pos - window_left<Config>(plan);
  if (kHasFunctors<Config> && row.token >= request.q_end) row.end = 0;
  return row;
}

// One logit through transform and mask, in two forms: of a tile that the structured masks cut
// (`partial`), and of one where every row sees every key, which asks nothing but the variant;
// without `ask` not even its mask. mask_bit() is the logit's bit of a custom mask. Leaves an input
// of the softmax: a scaled logit where something has to see it (kScalesLogits), else the raw
// product, which softmax_factor() scales. `left`, where it is given, takes a factor that is left to
// the softmax too: only where no logit is masked, for it is the same for all.
template <class Config, class Variant, bool partial, bool ask, class MaskBit>
LOOM_DEVICE float apply_variant_to_logit(float x, KvPosition kv_pos, const LogitRow& row,
                                         const Variant& variant, const PlanHeader& plan,
                                         const AttentionArgs& args, const RequestRow& request,
                                         const Work& work, MaskBit&& mask_bit,
                                         float* left = nullptr) {
  bool keep = true;
  if constexpr (partial) keep = kv_pos < row.end && (!Config::kWindow || kv_pos >= row.begin);
  if constexpr (Config::kCustomMask) keep = keep && mask_bit();
  if constexpr (Config::kHasLogitsMask && ask) {
    keep = keep && variant.logits_mask(request.batch, row.q_pos, int{kv_pos}, row.q_head,
                                       work.kv_head(), request.qo_len, request.kv_len);
  }
  const float scale = logit_scale<Config>(plan, args, work);
  // Within the condition of a mask the scale would be loaded for every logit.
  constexpr bool kScaleFirst = partial || Config::kCustomMask || Config::kHasLogitsMask;
  const Logit logit = kScaleFirst ? Logit{x * scale, 1.0f} : Logit{x, scale};
  if constexpr (Config::kHasLogitsTransform) {
    if (keep) {
      const auto y = variant.logits_transform(logit, request.batch, row.q_pos, kv_pos, row.q_head,
                                              work.kv_head(), request.qo_len, request.kv_len);
      if constexpr (kSame<decltype(y), const Scaled>) {
        if (left != nullptr) {
          *left = y.factor;
          return y.value;
        }
      }
      x = y;
    }
  } else if constexpr (kScalesLogits<Config>) {
    x = logit;
  }
  return keep ? x : Config::kSoftmax ? negative_infinity() : 0.0f;
}

// One 16-row block of logits against `fragments * 8` columns, the tile's from `first` on.
template <class Config, class Variant, bool partial, bool ask, int fragments, class Mask>
LOOM_DEVICE void apply_variant_to(float (&logits)[fragments][4], const Variant& variant,
                                  const PlanHeader& plan, const RequestRow& request,
                                  const Work& work, int kv_end, const KvColumns<Config>& columns,
                                  int first, int row_begin, const Mask& mask, float* left) {
  const int lane = thread_index_now() & 31;  // not through the KV loop: it was what spilled
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const LogitRow row = logit_row<Config>(plan, request, work, kv_end,
                                           work.item.q_row + row_begin + fragment_row(2 * r, lane));
    u32 bits = 0;
#pragma unroll
    for (int j = 0; j < fragments; ++j) {
      if constexpr (Mask::kUsed) {
        if (j % 4 == 0) bits = mask.word(row.token, first + 8 * j);
      }
#pragma unroll
      for (int e = 2 * r; e < 2 * r + 2; ++e) {
        const KvPosition kv_pos =
            columns.position(first + fragment_column(0, 0, lane),
                             fragment_column(j, e, lane) - fragment_column(0, 0, lane));
        logits[j][e] = apply_variant_to_logit<Config, Variant, partial, ask>(
            logits[j][e], kv_pos, row, variant, plan, columns.args, request, work,
            [&] {
              return Config::kBsr ? columns.mask_keeps(row.token, kv_pos)
                                  : (bits >> fragment_column(j & 3, e, lane) & 1) != 0;
            },
            left);
      }
    }
  }
}

// What fold() has to multiply logits by.
template <class Config>
LOOM_DEVICE float softmax_factor(const PlanHeader& plan, const AttentionArgs& args,
                                 const Work& work) {
  return kScalesLogits<Config> ? kLog2E : logit_scale<Config>(plan, args, work) * kLog2E;
}

}  // namespace loom
