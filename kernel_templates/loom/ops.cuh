// SPDX-License-Identifier: Apache-2.0
// The op vocabulary: every operation that has no C++ spelling, under one name on every target.
// Kernels and functors use these names only; `asm` stands in the target files and nowhere else.
//
// clang-format off
//   shared_address(p)                 32-bit shared-memory address of a pointer
//   thread_index_now()                threadIdx.x, never hoisted: what comes of it dies with its block
//   copy_async_16(to, from, bytes)    16 bytes global -> shared; `bytes` of them read (0 or 16), the rest zero
//   copy_async_4(to, from)            4 bytes likewise, all of them read
//   copy_async_commit(), _wait<n>()   close a group of copies; wait until at most n groups are in flight
//   load_matrix_x4(r, a), _trans      four 8x8 matrices of 16-bit elements, one row address per lane
//   mma_16x8x16(c, a, b0, b1, Element)  c += a * b, fp32 accumulators
//   pack2(lo, hi, Element)            two floats rounded to nearest even into one register
//   pack8(x, Element)                 eight floats likewise, as 16 bytes
//   to_float(x)                       16-bit float -> float, exact
//   exp2(x), log2(x), tanh(x)         approximate: 2^-22 relative, 2^-22 absolute, 2^-11 relative error
//   reciprocal(x)                     approximate: 1 ulp
//   exp(x), sigmoid(x)                approximate: 2^-21 relative while |x| < 8, 2^-24 |x| beyond
//   sin(x), cos(x)                    approximate: 2^-20 absolute, |x| <= pi
//   cosine_sine(phase, c, s)          likewise, of phase * 2^-32 of a turn
//   fence_gpu()                       orders this thread's accesses before and after it for the whole device
//   counter_add(p, n)                 relaxed atomic add at device scope; returns the old value
//   max_across_quad(x), sum_across_quad(x)  over the four lanes that share an accumulator row
// clang-format on
#pragma once

#include "loom/logit.cuh"
#include "loom/ops_sm80.cuh"

namespace loom {

LOOM_DEVICE float max_across_quad(float x) {
  x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
  return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}

LOOM_DEVICE float sum_across_quad(float x) {
  x += __shfl_xor_sync(~0u, x, 1);
  return x + __shfl_xor_sync(~0u, x, 2);
}

// Of numbers, and of logits that still are to be scaled (loom/logit.cuh). Two operations of the
// special function unit, where CUDA's expf() and 1.0f / x are eleven
// multiply-adds and a slow path besides (--prec-div=false leaves a quotient of 1 exact).
template <class T>
LOOM_DEVICE float exp(const T& x) {
  return exp2(x * kLog2E);
}
template <class T>
LOOM_DEVICE float sigmoid(const T& x) {
  return reciprocal(1.0f + exp2(x * -kLog2E));
}

template <class Element>
LOOM_DEVICE uint4 pack8(const float (&x)[8], Element tag) {
  return make_uint4(pack2(x[0], x[1], tag), pack2(x[2], x[3], tag), pack2(x[4], x[5], tag),
                    pack2(x[6], x[7], tag));
}

LOOM_DEVICE void cosine_sine(u32 phase, float& cosine, float& sine) {
  constexpr float kRadians = 1.4629180792671596e-9f;  // of 2^-32 of a turn
  const float angle = static_cast<float>(static_cast<int>(phase)) * kRadians;
  cosine = cos(angle);
  sine = sin(angle);
}

}  // namespace loom
