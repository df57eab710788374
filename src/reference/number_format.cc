// SPDX-License-Identifier: Apache-2.0
#include "reference/number_format.h"

#include <bit>
#include <cmath>
#include <limits>

namespace attnloom::reference {
namespace {

struct Format {
  int bits;
  int mantissa_bits;
  int exponent_bits;
  unsigned largest;   // code of the largest finite number
  unsigned overflow;  // what lies past it
  unsigned infinity;
  unsigned nan;  // one of them; every magnitude past `largest` that is no infinity is a NaN

  int least_exponent() const { return 2 - (1 << (exponent_bits - 1)); }  // of a normal number
  unsigned sign(bool negative) const { return negative ? 1u << (bits - 1) : 0u; }
};

constexpr Format kF16Format{16, 10, 5, 0x7bff, 0x7c00, 0x7c00, 0x7e00};
constexpr Format kBf16Format{16, 7, 8, 0x7f7f, 0x7f80, 0x7f80, 0x7fc0};
constexpr Format kE4m3Format{8, 3, 4, 0x7e, 0x7e, 0x7e, 0x7f};
constexpr Format kE5m2Format{8, 2, 5, 0x7b, 0x7b, 0x7c, 0x7f};

const Format& format_of(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return kF16Format;
    case DType::kBf16:
      return kBf16Format;
    case DType::kE4m3:
      return kE4m3Format;
    case DType::kE5m2:
      break;
  }
  return kE5m2Format;
}

constexpr int kDoubleMantissaBits = 52;
constexpr int kDoubleBias = 1023;

// significand / 2^shift to the nearest integer, ties to even.
std::uint64_t shift_to_even(std::uint64_t significand, int shift) {
  if (shift > kDoubleMantissaBits + 2) return 0;  // below half of the least step
  const std::uint64_t quotient = significand >> shift;
  const std::uint64_t rest = significand & ((std::uint64_t{1} << shift) - 1);
  const std::uint64_t half = std::uint64_t{1} << (shift - 1);
  const bool up = rest > half || (rest == half && (quotient & 1u) != 0);
  return quotient + (up ? 1 : 0);
}

}  // namespace

std::uint16_t to_bits(double value, DType dtype) {
  const Format& format = format_of(dtype);
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const unsigned sign = format.sign(bits >> 63 != 0);
  if (std::isnan(value)) return static_cast<std::uint16_t>(sign | format.nan);
  if (std::isinf(value)) return static_cast<std::uint16_t>(sign | format.infinity);
  const int biased = static_cast<int>(bits >> kDoubleMantissaBits & 0x7FFu);
  // A subnormal double is far below the least number of either format.
  if (biased == 0) return static_cast<std::uint16_t>(sign);
  const int exponent = biased - kDoubleBias;
  const std::uint64_t implicit_one = std::uint64_t{1} << kDoubleMantissaBits;
  const std::uint64_t significand = (bits & (implicit_one - 1)) | implicit_one;
  const int below = format.least_exponent() - exponent;  // > 0: subnormal in the format
  const int shift = kDoubleMantissaBits - format.mantissa_bits + (below > 0 ? below : 0);
  const std::uint64_t rounded = shift_to_even(significand, shift);
  // A carry out of the mantissa runs into the exponent, which is just right.
  const std::uint64_t exponent_field =
      below > 0 ? 0 : static_cast<std::uint64_t>(-below) << format.mantissa_bits;
  const std::uint64_t magnitude = exponent_field + rounded;
  if (magnitude > format.largest) return static_cast<std::uint16_t>(sign | format.overflow);
  return static_cast<std::uint16_t>(sign | magnitude);
}

double from_bits(std::uint16_t bits, DType dtype) {
  const Format& format = format_of(dtype);
  const double sign = (bits & format.sign(true)) != 0 ? -1.0 : 1.0;
  const unsigned magnitude = bits & (format.sign(true) - 1u);
  if (magnitude > format.largest) {
    return magnitude == format.infinity ? sign * std::numeric_limits<double>::infinity()
                                        : std::numeric_limits<double>::quiet_NaN();
  }
  const unsigned field = magnitude >> format.mantissa_bits;
  const unsigned mantissa = magnitude & ((1u << format.mantissa_bits) - 1u);
  const int exponent = format.least_exponent() + (field == 0 ? 0 : static_cast<int>(field) - 1);
  const unsigned significand = field == 0 ? mantissa : mantissa | 1u << format.mantissa_bits;
  return sign * std::ldexp(static_cast<double>(significand), exponent - format.mantissa_bits);
}

}  // namespace attnloom::reference
