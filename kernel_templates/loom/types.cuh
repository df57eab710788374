// SPDX-License-Identifier: Apache-2.0
// What kernels need of types: NVRTC has no stdint.h and no 16-bit floats of its own, so both are
// defined here as bits.
#pragma once

#include "loom/plan.cuh"

#define LOOM_DEVICE __device__ __forceinline__

namespace loom {

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

constexpr float kLog2E = 1.4426950408889634f;
constexpr float kLn2 = 0.6931471805599453f;

LOOM_DEVICE float negative_infinity() {
  return __int_as_float(0xff800000);
}

// Scalar params travel as bits in PlanHeader::scalars.
LOOM_DEVICE float scalar_f32(u32 bits) {
  return __uint_as_float(bits);
}
LOOM_DEVICE int scalar_i32(u32 bits) {
  return static_cast<int>(bits);
}
LOOM_DEVICE u32 scalar_u32(u32 bits) {
  return bits;
}

}  // namespace loom
