// SPDX-License-Identifier: Apache-2.0
// The 8-bit float formats from their definition. Pure.
#pragma once

#include <cmath>

#include "spec/types.h"

namespace attnloom::testing {

struct Fp8Format {
  const char* element;  // its name on the device
  int mantissa_bits;
  int bias;
  unsigned largest;  // code of the largest finite number
};
inline constexpr Fp8Format kE4m3Format = {"E4m3", 3, 7, 0x7e};
inline constexpr Fp8Format kE5m2Format = {"E5m2", 2, 15, 0x7b};

inline const Fp8Format& fp8_format(DType dtype) {
  return dtype == DType::kE4m3 ? kE4m3Format : kE5m2Format;
}

// REQUIRES: code <= largest + 1, which stands for the number that would come next.
inline double fp8_magnitude(unsigned code, const Fp8Format& format) {
  const unsigned field = code >> format.mantissa_bits;
  const unsigned fraction = code & ((1u << format.mantissa_bits) - 1u);
  const unsigned significand = field == 0 ? fraction : fraction | 1u << format.mantissa_bits;
  const int exponent = (field == 0 ? 1 : static_cast<int>(field)) - format.bias;
  return std::ldexp(significand, exponent - format.mantissa_bits);
}

// The nearest number's code by trying them all, the even one of two; saturating; NaN is 0x7f.
inline unsigned fp8_nearest(double value, const Fp8Format& format) {
  if (std::isnan(value)) return 0x7f;
  const double magnitude = std::abs(value);
  unsigned best = 0;
  for (unsigned code = 1; code <= format.largest; ++code) {
    const double now = std::abs(fp8_magnitude(code, format) - magnitude);
    const double before = std::abs(fp8_magnitude(best, format) - magnitude);
    if (now < before || (now == before && code % 2 == 0)) best = code;
  }
  if (std::isinf(value)) best = format.largest;
  return best | (std::signbit(value) ? 0x80u : 0u);
}

}  // namespace attnloom::testing
