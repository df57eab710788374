// SPDX-License-Identifier: Apache-2.0
// float64 <-> the 16-bit formats, by integer arithmetic: independent of the rounding mode of the
// process, and rounded once (a detour over float32 would round twice). Pure; thread-safe.
#pragma once

#include <cstdint>

#include "spec/types.h"

namespace attnloom::reference {

// Nearest even; what lies past the largest finite number becomes infinite; every NaN becomes the
// quiet one. REQUIRES: dtype is kF16 or kBf16.
std::uint16_t to_bits(double value, DType dtype);
double from_bits(std::uint16_t bits, DType dtype);  // exact

inline double round_to(double value, DType dtype) {
  return from_bits(to_bits(value, dtype), dtype);
}

}  // namespace attnloom::reference
