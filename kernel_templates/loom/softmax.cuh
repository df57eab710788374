// SPDX-License-Identifier: Apache-2.0
// The online softmax of one warp's rows, in base 2: weights are 2^(x - m), l is their running sum.
// m is a running reference rather than the maximum: it follows the maximum only when that has grown
// by more than kSlack, so that the accumulators of the values are rescaled a few times a row and
// not once a tile (128 of 800 instructions of a 128 x 32 tile). Weights then reach 2^kSlack, which
// costs neither fp32 sums nor 16-bit weights any precision. Every lane of a quad holds the same m;
// l is this lane's part until finish().
#pragma once

#include "loom/tile.cuh"

namespace loom {

constexpr float kSlack = 8.0f;

// What weights are taken against. For a row that has seen no key yet any finite reference gives
// 2^(-inf) = 0, where -inf - -inf would be NaN.
LOOM_DEVICE float softmax_reference(float m) {
  return m == negative_infinity() ? 0.0f : m;
}

template <int blocks>
struct SoftmaxState {
  float m[blocks][2];
  float l[blocks][2];

  LOOM_DEVICE SoftmaxState() {
#pragma unroll
    for (int b = 0; b < blocks; ++b) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        m[b][r] = negative_infinity();
        l[b][r] = 0.0f;
      }
    }
  }

  // Turns logits into weights. `factor` scales logits into base 2; REQUIRES: factor > 0, so the
  // maximum may be taken before it is applied and each weight costs one FMA and one exp2.
  template <int logit_fragments, int value_fragments>
  LOOM_DEVICE void fold(float (&logits)[blocks][logit_fragments][4],
                        float (&values)[blocks][value_fragments][4], float factor) {
    float highest[blocks][2];
    if (__any_sync(~0u, find_highest(highest, logits, factor))) rescale(highest, values);
    weigh(logits, factor);
  }

  // fold() in two halves, for values that a product still adds to: m and l follow, and what the
  // values are to shrink by is left in `highest`. Whether they are to, the same for a whole warp.
  template <int logit_fragments>
  LOOM_DEVICE bool fold_logits(float (&highest)[blocks][2],
                               float (&logits)[blocks][logit_fragments][4], float factor) {
    const bool shrinks = __any_sync(~0u, find_highest(highest, logits, factor));
    if (shrinks) {
#pragma unroll
      for (int b = 0; b < blocks; ++b) {
#pragma unroll
        for (int r = 0; r < 2; ++r) highest[b][r] = follow(b, r, highest[b][r]);
      }
    }
    weigh(logits, factor);
    return shrinks;
  }
  template <int value_fragments>
  LOOM_DEVICE static void shrink_values(const float (&by)[blocks][2],
                                        float (&values)[blocks][value_fragments][4]) {
#pragma unroll
    for (int b = 0; b < blocks; ++b) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
#pragma unroll
        for (int j = 0; j < value_fragments; ++j) {
          values[b][j][2 * r] *= by[b][r];
          values[b][j][2 * r + 1] *= by[b][r];
        }
      }
    }
  }

  // The maximum of each row so far, and whether one has grown enough to follow.
  template <int logit_fragments>
  LOOM_DEVICE bool find_highest(float (&highest)[blocks][2],
                                const float (&logits)[blocks][logit_fragments][4],
                                float factor) const {
    bool grew = false;
#pragma unroll
    for (int b = 0; b < blocks; ++b) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        float top = logits[b][0][2 * r];
#pragma unroll
        for (int j = 0; j < logit_fragments; ++j)
          top = fmaxf(top, fmaxf(logits[b][j][2 * r], logits[b][j][2 * r + 1]));
        highest[b][r] = fmaxf(m[b][r], max_across_quad(top) * factor);
        grew = grew || highest[b][r] > m[b][r] + kSlack;
      }
    }
    return grew;
  }

  template <int logit_fragments>
  LOOM_DEVICE void weigh(float (&logits)[blocks][logit_fragments][4], float factor) {
#pragma unroll
    for (int b = 0; b < blocks; ++b) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float shift = softmax_reference(m[b][r]);
        float sum = 0.0f;
#pragma unroll
        for (int j = 0; j < logit_fragments; ++j) {
#pragma unroll
          for (int e = 2 * r; e < 2 * r + 2; ++e) {
            logits[b][j][e] = exp2(fmaf(logits[b][j][e], factor, -shift));
            sum += logits[b][j][e];
          }
        }
        l[b][r] += sum;
      }
    }
  }

  // m of a row goes to `highest` and l with it; returns what its values shrink by.
  LOOM_DEVICE float follow(int b, int r, float highest) {
    const float shrink = exp2(m[b][r] - softmax_reference(highest));
    m[b][r] = highest;
    l[b][r] *= shrink;
    return shrink;
  }

  template <int value_fragments>
  LOOM_DEVICE void rescale(const float (&highest)[blocks][2],
                           float (&values)[blocks][value_fragments][4]) {
    float by[blocks][2];
#pragma unroll
    for (int b = 0; b < blocks; ++b) {
#pragma unroll
      for (int r = 0; r < 2; ++r) by[b][r] = follow(b, r, highest[b][r]);
    }
    shrink_values(by, values);
  }

  LOOM_DEVICE void finish() {
#pragma unroll
    for (int b = 0; b < blocks; ++b) {
#pragma unroll
      for (int r = 0; r < 2; ++r) l[b][r] = sum_across_quad(l[b][r]);
    }
  }
};

// 1/l. A row without keys has values 0 and l = 0: its output is exactly 0 by any finite factor.
// (Compared with 0, not `> 0`: a NaN must stay one.)
LOOM_DEVICE float inverse_sum(float l) {
  return reciprocal(l == 0.0f ? 1.0f : l);
}

// Base-2 LSE of a state; -inf for a row without keys.
LOOM_DEVICE float state_lse(float m, float l) {
  return l == 0.0f ? negative_infinity() : m + log2(l);
}

// The weight of a state against the largest LSE of its row; 0 for an empty state, also among empty
// ones only.
LOOM_DEVICE float state_weight(float lse, float largest) {
  return lse == negative_infinity() ? 0.0f : exp2(lse - largest);
}

}  // namespace loom
