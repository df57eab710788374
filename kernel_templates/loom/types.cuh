// SPDX-License-Identifier: Apache-2.0
// What kernels need of types: NVRTC has no stdint.h and no 16-bit floats of its own, so both are
// defined here as bits.
#pragma once

#include "loom/plan.cuh"

#define LOOM_DEVICE __device__ __forceinline__

namespace loom {

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i64 = long long;

// 16-bit floats are carried as bits; ops.cuh converts and multiplies them.
struct Bf16 {
  u16 bits;
};
struct F16 {
  u16 bits;
};
// So are 8-bit floats (ops_fp8.cuh), which are read and written in pairs.
struct E4m3 {
  u8 bits;
};
struct E5m2 {
  u8 bits;
};

// Where the scales of a quantised cache come from.
enum class KvScale { kNone, kTensor, kHead };

// What a variant's tile_mask says of a block of (query, key) pairs: none is kept, all are, or ask
// logits_mask about each.
enum class TileMask { kSkip, kFull, kPartial };

// Of several masks that all have to keep a pair.
template <class... Masks>
LOOM_DEVICE TileMask tile_mask_of_all(Masks... masks) {
  if (((masks == TileMask::kSkip) || ...)) return TileMask::kSkip;
  return ((masks == TileMask::kFull) && ...) ? TileMask::kFull : TileMask::kPartial;
}

// Whether a variant rewrites rows in shared memory before any product reads them.
template <class Config>
constexpr bool kHasRowFunctors =
    Config::kHasQueryTransform || Config::kHasKeyTransform || Config::kHasValueTransform;

constexpr float kLog2E = 1.4426950408889634f;
constexpr float kLn2 = 0.6931471805599453f;

LOOM_DEVICE float negative_infinity() {
  return __int_as_float(0xff800000);
}

// A float param as functors see it: a float, but dividing by it multiplies by its reciprocal, taken
// once a CTA. A division a logit (its rare cases are a call) halved the speed of soft caps.
struct ScalarF32 {
  float value;
  float inverse;
  LOOM_DEVICE operator float() const { return value; }
};
template <class T>
LOOM_DEVICE auto operator/(T x, const ScalarF32& by) {
  if constexpr (sizeof(x * 1.0f) == sizeof(double)) {
    return x / by.value;
  } else {
    return x * by.inverse;
  }
}

// Scalar params travel as bits in PlanHeader::scalars.
LOOM_DEVICE ScalarF32 scalar_f32(u32 bits) {
  return {__uint_as_float(bits), 1.0f / __uint_as_float(bits)};
}
LOOM_DEVICE int scalar_i32(u32 bits) {
  return static_cast<int>(bits);
}
LOOM_DEVICE u32 scalar_u32(u32 bits) {
  return bits;
}

}  // namespace loom
