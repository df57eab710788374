// SPDX-License-Identifier: Apache-2.0
// float64 <-> the 16-bit and 8-bit formats, by integer arithmetic: independent of the rounding mode
// of the process, and rounded once (a detour over float32 would round twice). Pure; thread-safe.
#pragma once

#include <cstdint>

#include "spec/types.h"

namespace attnloom::reference {

// Nearest even; every NaN becomes one NaN. Past the largest finite number lies infinity in 16 bits
// and that number again in 8; infinity itself is kept where the format has one, which E4M3 has not.
// An 8-bit number is the low byte.
std::uint16_t to_bits(double value, DType dtype);
double from_bits(std::uint16_t bits, DType dtype);  // exact

inline double round_to(double value, DType dtype) {
  return from_bits(to_bits(value, dtype), dtype);
}

}  // namespace attnloom::reference
