// SPDX-License-Identifier: Apache-2.0
// Row: one (token, head) row of queries, keys or values as a row functor sees it: fp32 values in
// registers, rounded to the tile's type once, when the functor has returned.
//
// One warp shares a row, and every lane calls the functor. All methods are collective: a functor
// must not call them under a condition that differs between lanes. Lane l holds elements 2l and
// 2l + 1 of every 64: 32 lanes touch 128 contiguous bytes of shared memory at once, neighbours of
// an interleaved pair share a lane, and so do i and i + 64.
#pragma once

#include "loom/tile.cuh"

namespace loom {

// Whose row it is.
struct RowArgs {
  int batch;  // request
  int pos;    // queries: as q_pos of the element functors; keys and values: as kv_pos
  int head;   // query head, or KV head for keys and values
  int q_len;  // tokens of the request
  int kv_len;
};

// Cosine and sine of the angle position * frequency (radians). The f32 frequency counts as exact;
// the angle is reduced in fixed point, 2^-32 of a turn, which wraps where a product in f32 is off
// by a tenth of a radian past 2^20. The frequency's own rounding turns position p by p * 2^-33 of a
// turn too far, the same for queries and keys: only their distance counts.
LOOM_DEVICE void rotation(int position, float frequency, float& cosine, float& sine) {
  constexpr float kUnits = 683565248.0f;  // 2^32 / (2 pi), in two floats
  constexpr float kUnitsRest = 27.57643159f;
  const float units = frequency * kUnits;
  const float rest = fmaf(frequency, kUnits, -units) + frequency * kUnitsRest;
  const u32 step = static_cast<u32>(__float2ll_rn(units)) + static_cast<u32>(__float2int_rn(rest));
  cosine_sine(step * static_cast<u32>(position), cosine, sine);
}

// Cosines and sines that a lane hands from a row to the next of its batch, `step` positions on: the
// angle sum costs four FMAs where a new angle costs six operations, two of them on the special
// function unit that the softmax needs. Checked by value, so a functor may do as it likes; in a
// batch of consecutive positions the compiler proves every check.
template <int angles>
struct AngleChain {
  int step = 0;  // 0: off
  bool known[angles] = {};
  int pos[angles];
  float frequency[angles];
  float cosine[angles], sine[angles];
  float step_cosine[angles], step_sine[angles];
};

template <int dim>
struct Row {
  static constexpr int kSlots = (dim + 63) / 64;  // pairs of elements a lane

  float value[kSlots][2];
  AngleChain<2 * kSlots>* chain = nullptr;
  // What sum_of_squares() would give, where the pass knows it of the elements as they are. The
  // compiler follows the flag, so a functor that changes them first just sums anew.
  float squares = 0.0f;
  bool knows_squares = false;

  LOOM_DEVICE static constexpr int size() { return dim; }

  LOOM_DEVICE static int index(int slot) { return 64 * slot + 2 * lane_index(); }
  LOOM_DEVICE static bool holds(int slot) { return 64 * (slot + 1) <= dim || index(slot) < dim; }

  // Element i, on every lane; i may differ between lanes.
  LOOM_DEVICE float get(int i) const {
    float found = 0.0f;
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      const float even = __shfl_sync(~0u, value[s][0], i % 64 / 2);
      const float odd = __shfl_sync(~0u, value[s][1], i % 64 / 2);
      if (i / 64 == s) found = i % 2 == 0 ? even : odd;
    }
    return found;
  }
  // REQUIRES: i and x are the same on every lane.
  LOOM_DEVICE void set(int i, float x) {
    knows_squares = false;
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      if (index(s) == i) value[s][0] = x;
      if (index(s) + 1 == i) value[s][1] = x;
    }
  }

  // Every element becomes f(i, element).
  template <class F>
  LOOM_DEVICE void map(F&& f) {
    knows_squares = false;
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      if (!holds(s)) continue;
      const int i = index(s);
      value[s][0] = f(i, value[s][0]);
      value[s][1] = f(i + 1, value[s][1]);
    }
  }
  LOOM_DEVICE void scale(float factor) {
    map([&](int, float x) { return x * factor; });
  }

  // The sum of f(i, element), on every lane.
  template <class F>
  LOOM_DEVICE float sum(F&& f) const {
    float part = own_sum(f);
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) part += __shfl_xor_sync(~0u, part, lanes);
    return part;
  }
  LOOM_DEVICE float sum_of_squares() const {
    return knows_squares ? squares : sum([](int, float x) { return x * x; });
  }
  // This lane's part of a sum.
  template <class F>
  LOOM_DEVICE float own_sum(F&& f) const {
    float part = 0.0f;
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      if (!holds(s)) continue;
      part += f(index(s), value[s][0]);
      part += f(index(s) + 1, value[s][1]);
    }
    return part;
  }

  // Turns the pairs (2i, 2i + 1) of the first r elements by the angle whose cosine and sine
  // f(i, c, s) gives. REQUIRES: r is even and at most dim, here and below.
  template <class F>
  LOOM_DEVICE void rotate_pairs(int r, F&& f) {
    turn_pairs(r, [&](int, int i, float& c, float& s) { f(i, c, s); });
  }
  // The same for the pairs (i, i + r/2).
  template <class F>
  LOOM_DEVICE void rotate_half(int r, F&& f) {
    turn_half(r, [&](int, int i, float& c, float& s) { f(i, c, s); });
  }

  // RoPE: the same by the angle pos * frequency(i), in radians (rotation() below).
  template <class F>
  LOOM_DEVICE void rope_pairs(int r, int pos, F&& frequency) {
    turn_pairs(r, [&](int n, int i, float& c, float& s) { angle(n, pos, frequency(i), c, s); });
  }
  template <class F>
  LOOM_DEVICE void rope_half(int r, int pos, F&& frequency) {
    turn_half(r, [&](int n, int i, float& c, float& s) { angle(n, pos, frequency(i), c, s); });
  }

 private:
  // `n` numbers the angles of a lane; f(n, i, c, s).
  template <class F>
  LOOM_DEVICE void turn_pairs(int r, F&& f) {
    knows_squares = false;
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      if (index(s) < r) turn(value[s][0], value[s][1], 2 * s, index(s) / 2, f);
    }
  }
  template <class F>
  LOOM_DEVICE void turn_half(int r, F&& f) {
    knows_squares = false;
    if (r == 128 && kSlots >= 2) {
      turn_slots<1>(f);
    } else if (r == 256 && kSlots >= 4) {
      turn_slots<2>(f);
    } else if (r == 512 && kSlots >= 8) {
      turn_slots<4>(f);
    } else {
      turn_lanes(r, f);
    }
  }

  template <class F>
  LOOM_DEVICE static void turn(float& x, float& y, int n, int i, F&& f) {
    float c;
    float s;
    f(n, i, c, s);
    const float turned = x * c - y * s;
    y = y * c + x * s;
    x = turned;
  }

  // Where a pair's halves lie in one lane, `distance` slots apart.
  template <int distance, class F>
  LOOM_DEVICE void turn_slots(F&& f) {
#pragma unroll
    for (int s = 0; s < distance && s + distance < kSlots; ++s) {
#pragma unroll
      for (int e = 0; e < 2; ++e)
        turn(value[s][e], value[s + distance][e], 2 * s + e, index(s) + e, f);
    }
  }

  // Where they lie in different lanes: each computes its own half of the result.
  template <class F>
  LOOM_DEVICE void turn_lanes(int r, F&& f) {
    const int half = r / 2;
    float other[kSlots][2];
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int i = index(s) + e;
        const int partner = i < half ? i + half : i - half;
        if (r <= 64 && r % 4 == 0) {  // both halves in slot 0, and even indices face even ones
          other[s][e] = s == 0 ? __shfl_sync(~0u, value[0][e], partner / 2) : 0.0f;
        } else {
          other[s][e] = get(partner);
        }
      }
    }
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int i = index(s) + e;
        if (i >= r) continue;
        float cosine;
        float sine;
        f(2 * s + e, i < half ? i : i - half, cosine, sine);
        value[s][e] = value[s][e] * cosine + other[s][e] * (i < half ? -sine : sine);
      }
    }
  }

  // Angle `n` of this lane: a step on from the row before, or from the start.
  LOOM_DEVICE void angle(int n, int pos, float frequency, float& cosine, float& sine) {
    if (chain == nullptr || chain->step == 0) return rotation(pos, frequency, cosine, sine);
    auto& c = *chain;
    const bool same = c.known[n] && __float_as_int(c.frequency[n]) == __float_as_int(frequency);
    if (same && pos == c.pos[n] + c.step) {
      cosine = c.cosine[n] * c.step_cosine[n] - c.sine[n] * c.step_sine[n];
      sine = c.sine[n] * c.step_cosine[n] + c.cosine[n] * c.step_sine[n];
    } else {
      rotation(pos, frequency, cosine, sine);
      rotation(c.step, frequency, c.step_cosine[n], c.step_sine[n]);
    }
    c.known[n] = true;
    c.pos[n] = pos;
    c.frequency[n] = frequency;
    c.cosine[n] = cosine;
    c.sine[n] = sine;
  }
};

// Gives every row of a batch its sum of squares: rows and lanes are halved together, so eight rows
// cost 17 shuffles where one row after the other costs 40. (They were a fifth of a tile's time.)
template <int rows, int dim>
LOOM_DEVICE void sum_squares(Row<dim> (&batch)[rows]) {
  static_assert((rows & (rows - 1)) == 0 && rows <= 32, "halved to one");
  float part[rows];
#pragma unroll
  for (int i = 0; i < rows; ++i) part[i] = batch[i].own_sum([](int, float x) { return x * x; });
#pragma unroll
  for (int half = rows / 2, bit = 16; bit > 0; half /= 2, bit /= 2) {
    const bool upper = (lane_index() & bit) != 0;
#pragma unroll
    for (int i = 0; i < half; ++i) {
      const float sent = upper ? part[i] : part[i + half];
      part[i] = (upper ? part[i + half] : part[i]) + __shfl_xor_sync(~0u, sent, bit);
    }
    if (half == 0) part[0] += __shfl_xor_sync(~0u, part[0], bit);
  }
#pragma unroll
  for (int i = 0; i < rows; ++i) {
    batch[i].squares = __shfl_sync(~0u, part[0], i * (32 / rows));
    batch[i].knows_squares = true;
  }
}

}  // namespace loom
