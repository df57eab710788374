// SPDX-License-Identifier: Apache-2.0
// The matrix products of wgmma, on floats. Sums are taken one product after the other with
// ascending k, as in matrix.cc.
#include "sim/lanes/number.h"

namespace attnloom::sim::ATTNLOOM_SIM_ISA {
namespace {

template <class Code, class F>
inline void widen_as(const std::byte* from, float* to, int count, F value) {
  for (int k = 0; k < count; ++k) {
    Code code;
    __builtin_memcpy(&code, from + sizeof(Code) * static_cast<unsigned>(k), sizeof(Code));
    to[k] = value(code);
  }
}

void widen(Type type, const std::byte* from, float* to, int count) {
  switch (type) {
    case Type::kBf16:
      return widen_as<u16>(from, to, count, [](u16 x) { return bf16_value(x); });
    case Type::kF16:
      return widen_as<u16>(from, to, count, [](u16 x) { return f16_value(x); });
    case Type::kE4m3:
      return widen_as<u8>(from, to, count, [](u8 x) { return e4m3_value(x); });
    default:
      return widen_as<u8>(from, to, count, [](u8 x) { return e5m2_value(x); });
  }
}

// Four rows and kColumns columns of the sum at a time, which stay in registers.
template <int kColumns>
inline void multiply_block(const float* a, const float* b, float* sum, int n, int k) {
  constexpr int kRows = 4;
  float acc[kRows][kColumns];
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kColumns; ++c) acc[r][c] = sum[r * n + c];
  }
  for (int step = 0; step < k; ++step) {
    for (int r = 0; r < kRows; ++r) {
      float left = a[r * k + step];
      for (int c = 0; c < kColumns; ++c)
        acc[r][c] = __builtin_fmaf(left, b[step * n + c], acc[r][c]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kColumns; ++c) sum[r * n + c] = canonical(acc[r][c]);
  }
}

void multiply(const float* a, const float* b, float* sum, int rows, int n, int k) {
  int c = 0;
  for (; c + 32 <= n; c += 32) {
    for (int r = 0; r < rows; r += 4) multiply_block<32>(a + r * k, b + c, sum + r * n + c, n, k);
  }
  for (; c < n; c += 8) {
    for (int r = 0; r < rows; r += 4) multiply_block<8>(a + r * k, b + c, sum + r * n + c, n, k);
  }
}

constexpr ProductOps kOps = {&widen, &multiply};

}  // namespace

const ProductOps& product_ops() {
  return kOps;
}

}  // namespace attnloom::sim::ATTNLOOM_SIM_ISA
