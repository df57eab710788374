// SPDX-License-Identifier: Apache-2.0
// The ops of 8-bit floats, in pairs. Chips from sm_89 on convert in one instruction; older ones get
// integer arithmetic under the same names. Both give the same bits for every number, and a NaN for
// a NaN.
//
//   pack2(lo, hi, Element8)        two floats -> 16 bits, nearest even; past the largest finite
//                                  number, infinity included, that number; NaN is 0x7f
//   unpack2_f16<i, j>(word, Element8)    bytes i and j of a word (default: 0 and 1) -> two f16 in
//                                  one register, exact
#pragma once

#include "loom/types.cuh"

namespace loom {

// One float as `mantissa` bits and an exponent biased by `bias`; `largest` is the code of the
// largest finite number and `largest_bits` that number as f32.
template <int mantissa, int bias, u32 largest, u32 largest_bits>
LOOM_DEVICE u32 round_to_fp8(float x) {
  constexpr int kDropped = 23 - mantissa;
  constexpr u32 kLeastNormal = static_cast<u32>(127 + 1 - bias) << 23;
  // One step of the subnormals is the last mantissa bit of this power of two, so adding it rounds.
  constexpr u32 kSubnormalOne = static_cast<u32>(127 + 23 + 1 - bias - mantissa) << 23;
  const u32 bits = __float_as_uint(x);
  const u32 magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return 0x7fu;
  u32 code = largest;
  if (magnitude < kLeastNormal) {
    code = __float_as_uint(__uint_as_float(magnitude) + __uint_as_float(kSubnormalOne)) -
           kSubnormalOne;
  } else if (magnitude < largest_bits) {
    constexpr u32 kHalfLess = (1u << (kDropped - 1)) - 1u;
    const u32 rounded = magnitude + kHalfLess + (magnitude >> kDropped & 1u);
    code = (rounded >> kDropped) - (static_cast<u32>(127 - bias) << mantissa);
  }
  return code | (bits >> 24 & 0x80u);
}

LOOM_DEVICE u32 pack2(float lo, float hi, E4m3) {
#if __CUDA_ARCH__ >= 890
  u16 packed;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(packed) : "f"(hi), "f"(lo));
  return packed;
#else
  return round_to_fp8<3, 7, 0x7eu, 0x43e00000u>(lo) | round_to_fp8<3, 7, 0x7eu, 0x43e00000u>(hi)
                                                          << 8;
#endif
}

LOOM_DEVICE u32 pack2(float lo, float hi, E5m2) {
#if __CUDA_ARCH__ >= 890
  u16 packed;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(packed) : "f"(hi), "f"(lo));
  return packed;
#else
  return round_to_fp8<2, 15, 0x7bu, 0x47600000u>(lo) | round_to_fp8<2, 15, 0x7bu, 0x47600000u>(hi)
                                                           << 8;
#endif
}

// Bytes `first` and `second` of a word. The two ways in which a fragment needs them come down to
// one permutation for both of its halves.
template <int first = 0, int second = 1>
LOOM_DEVICE u32 unpack2_f16(u32 word, E4m3) {
  static_assert(second == first + 1 || second == first + 2, "neighbours, or every other one");
#if __CUDA_ARCH__ >= 890
  const u32 sorted = second == first + 1 ? word : __byte_perm(word, 0, 0x3120);
  constexpr bool kUpper = first == (second == first + 1 ? 2 : 1);
  u32 wide;
  if constexpr (kUpper) {
    asm("{ .reg .b16 lower, upper; mov.b32 {lower, upper}, %1; cvt.rn.f16x2.e4m3x2 %0, upper; }"
        : "=r"(wide)
        : "r"(sorted));
  } else {
    asm("{ .reg .b16 lower, upper; mov.b32 {lower, upper}, %1; cvt.rn.f16x2.e4m3x2 %0, lower; }"
        : "=r"(wide)
        : "r"(sorted));
  }
  return wide;
#else
  // Each code in the upper byte of its half. Sign and magnitude moved to where f16 has them mean
  // 2^-8 of the number: the biases are 15 and 7.
  const u32 codes = __byte_perm(word, 0, 0x0404 | first << 4 | second << 12);
  const u32 magnitude = codes >> 1 & 0x3f803f80u;
  u32 wide;
  asm("mul.rn.f16x2 %0, %1, %2;"
      : "=r"(wide)
      : "r"(magnitude | (codes & 0x80008000u)), "r"(0x5c005c00u));
  // The largest magnitude, which would be 480, is the NaN: one exponent bit more makes it one.
  return wide | ((magnitude + 0x00800080u) >> 1 & 0x20002000u);
#endif
}

// An E5M2 is the upper byte of the f16 of that number: one byte permutation on every chip.
template <int first = 0, int second = 1>
LOOM_DEVICE u32 unpack2_f16(u32 word, E5m2) {
  return __byte_perm(word, 0, 0x0404 | first << 4 | second << 12);
}

}  // namespace loom
