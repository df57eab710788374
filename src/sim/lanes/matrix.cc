// SPDX-License-Identifier: Apache-2.0
// mma.sync m16n8k8 and m16n8k16 with f32 accumulators. A fragment register is an 8x8 matrix in
// memory: lane l holds row l/4, columns 2*(l%4) and the next, so a row is 16 contiguous bytes.
// Products are added one by one with ascending k; a tensor core need not do so, hence the tolerance
// when results meet a real device.
#include "sim/lanes/number.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace attnloom::sim::ATTNLOOM_SIM_ISA {
namespace {

#if defined(__AVX512F__) && defined(__AVX512DQ__)

struct HalfPair {
  static __m512 widen(__m512i low_halves) {
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(low_halves));
  }
  static __m512 even(__m512i x) { return widen(x); }
  static __m512 odd(__m512i x) { return widen(_mm512_srli_epi32(x, 16)); }
};
struct Bf16Pair {
  static __m512 even(__m512i x) { return _mm512_castsi512_ps(_mm512_slli_epi32(x, 16)); }
  static __m512 odd(__m512i x) {
    return _mm512_castsi512_ps(
        _mm512_and_si512(x, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
  }
};

// One step of k = 8. acc[j][h]: accumulator register j, lanes 16h..16h+15. a: registers of rows 0-7
// and 8-15.
template <class Wide>
inline void multiply_8(__m512 (&acc)[4][2], const u32* const* a, const u32* b) {
  const __m512i a_base = _mm512_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12);
  const __m512i b_base = _mm512_setr_epi32(0, 8, 16, 24, 0, 8, 16, 24, 0, 8, 16, 24, 0, 8, 16, 24);
  const __m512i b0 = _mm512_load_si512(b), b1 = _mm512_load_si512(b + 16);
  const __m512i left[2][2] = {{_mm512_load_si512(a[0]), _mm512_load_si512(a[0] + 16)},
                              {_mm512_load_si512(a[1]), _mm512_load_si512(a[1] + 16)}};
  for (int pair = 0; pair < 4; ++pair) {
    const __m512i ai = _mm512_add_epi32(a_base, _mm512_set1_epi32(pair));
    // Accumulator columns 2c and 2c+1 of lane c want rows n = 2c and 2c+1 of B, that is its lanes
    // 8c+k and 8c+4+k.
    const __m512i bi = _mm512_add_epi32(b_base, _mm512_set1_epi32(pair));
    const __m512i bj = _mm512_add_epi32(b_base, _mm512_set1_epi32(pair + 4));
    const __m512i first = _mm512_permutex2var_epi32(b0, bi, b1),
                  second = _mm512_permutex2var_epi32(b0, bj, b1);
    const __m512 first_even = Wide::even(first), first_odd = Wide::odd(first);
    const __m512 second_even = Wide::even(second), second_odd = Wide::odd(second);
    for (int r = 0; r < 2; ++r) {
      for (int h = 0; h < 2; ++h) {
        const __m512i x = _mm512_permutexvar_epi32(ai, left[r][h]);
        const __m512 even = Wide::even(x), odd = Wide::odd(x);
        acc[2 * r][h] =
            _mm512_fmadd_ps(odd, first_odd, _mm512_fmadd_ps(even, first_even, acc[2 * r][h]));
        acc[2 * r + 1][h] =
            _mm512_fmadd_ps(odd, second_odd, _mm512_fmadd_ps(even, second_even, acc[2 * r + 1][h]));
      }
    }
  }
}

template <class Wide>
void multiply(const u32* const* a, const u32* const* b, const float* const* c, float* const* d,
              int steps) {
  __m512 acc[4][2];
  for (int j = 0; j < 4; ++j) {
    for (int h = 0; h < 2; ++h) acc[j][h] = _mm512_load_ps(c[j] + 16 * h);
  }
  for (int k = 0; k < steps; ++k) multiply_8<Wide>(acc, a + 2 * k, b[k]);
  const __m512 nan = _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(kCanonicalNan)));
  for (int j = 0; j < 4; ++j) {
    for (int h = 0; h < 2; ++h) {
      __mmask16 unordered = _mm512_cmp_ps_mask(acc[j][h], acc[j][h], _CMP_UNORD_Q);
      _mm512_store_ps(d[j] + 16 * h, _mm512_mask_mov_ps(acc[j][h], unordered, nan));
    }
  }
}

#else

struct Halves {
  alignas(64) float even[kLanes];  // columns 0, 2, 4, 6 of a row, by lane
  alignas(64) float odd[kLanes];
};

struct HalfPair {
  static void split(const u32* x, Halves& h) {
    ATTNLOOM_LANES h.even[lane] = f16_value(static_cast<u16>(x[lane]));
    ATTNLOOM_LANES h.odd[lane] = f16_value(static_cast<u16>(x[lane] >> 16));
  }
};
struct Bf16Pair {
  static void split(const u32* x, Halves& h) {
    ATTNLOOM_LANES h.even[lane] = bits_as<float>(x[lane] << 16);
    ATTNLOOM_LANES h.odd[lane] = bits_as<float>(x[lane] & 0xffff0000u);
  }
};

// sum[n] += the 8 products of one row of A, of which even and odd hold 4 each.
inline void multiply_row(float* sum, const float* even, const float* odd, const float (*right)[8]) {
#if defined(__AVX2__) && defined(__FMA__)
  __m256 s = _mm256_load_ps(sum);
  for (int k = 0; k < 4; ++k) {
    s = _mm256_fmadd_ps(_mm256_broadcast_ss(even + k), _mm256_load_ps(right[2 * k]), s);
    s = _mm256_fmadd_ps(_mm256_broadcast_ss(odd + k), _mm256_load_ps(right[2 * k + 1]), s);
  }
  _mm256_store_ps(sum, s);
#else
  for (int k = 0; k < 8; ++k) {
    float left = (k & 1) != 0 ? odd[k >> 1] : even[k >> 1];
    for (int n = 0; n < 8; ++n) sum[n] = __builtin_fmaf(left, right[k][n], sum[n]);
  }
#endif
}

template <class Element>
void multiply(const u32* const* a, const u32* const* b, const float* const* c, float* const* d,
              int steps) {
  alignas(64) float sum[16][8];
  for (int j = 0; j < 4; ++j) {
    for (int lane = 0; lane < kLanes; ++lane)
      sum[(j >> 1) * 8 + (lane >> 2)][2 * (lane & 3) + (j & 1)] = c[j][lane];
  }
  for (int k = 0; k < steps; ++k) {
    Halves ha[2], hb;
    Element::split(a[2 * k], ha[0]);
    Element::split(a[2 * k + 1], ha[1]);
    Element::split(b[k], hb);
    alignas(64) float right[8][8];  // [k][n]
    for (int lane = 0; lane < kLanes; ++lane) {
      right[2 * (lane & 3)][lane >> 2] = hb.even[lane];
      right[2 * (lane & 3) + 1][lane >> 2] = hb.odd[lane];
    }
    for (int r = 0; r < 16; ++r)
      multiply_row(sum[r], ha[r >> 3].even + (r & 7) * 4, ha[r >> 3].odd + (r & 7) * 4, right);
  }
  for (int j = 0; j < 4; ++j) {
    for (int lane = 0; lane < kLanes; ++lane)
      d[j][lane] = canonical(sum[(j >> 1) * 8 + (lane >> 2)][2 * (lane & 3) + (j & 1)]);
  }
}

#endif

// Operands: 4 of D, 2 * steps of A, steps of B, 4 of C; imm is the number of steps of k = 8.
template <class Element>
void mma(std::byte* registers, const Ins& ins, u32) {
  const u32* o = ins.more;
  int steps = static_cast<int>(ins.imm);
  const u32 *a[4], *b[2];
  const float* c[4];
  float* d[4];
  for (int j = 0; j < 4; ++j) d[j] = row<float>(registers, o[j]);
  for (int j = 0; j < 2 * steps; ++j) a[j] = row<u32>(registers, o[4 + j]);
  for (int j = 0; j < steps; ++j) b[j] = row<u32>(registers, o[4 + 2 * steps + j]);
  for (int j = 0; j < 4; ++j) c[j] = row<float>(registers, o[4 + 3 * steps + j]);
  multiply<Element>(a, b, c, d, steps);
}

}  // namespace

LaneFn select_matrix(const LaneForm& form) {
  if (form.op != LaneOp::kMma) return nullptr;
  if (form.source == Type::kF16) return &mma<HalfPair>;
  return form.source == Type::kBf16 ? &mma<Bf16Pair> : nullptr;
}

}  // namespace attnloom::sim::ATTNLOOM_SIM_ISA
