// SPDX-License-Identifier: Apache-2.0
#include "reference/number_format.h"

#include <bit>
#include <cmath>
#include <limits>

namespace attnloom::reference {
namespace {

struct Format {
  int mantissa_bits;
  int exponent_bits;

  int least_exponent() const { return 2 - (1 << (exponent_bits - 1)); }  // of a normal number
  unsigned infinity() const { return ((1u << exponent_bits) - 1u) << mantissa_bits; }
};

constexpr Format kF16Format{10, 5};
constexpr Format kBf16Format{7, 8};

Format format_of(DType dtype) {
  return dtype == DType::kF16 ? kF16Format : kBf16Format;
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
  const Format format = format_of(dtype);
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const auto sign = static_cast<unsigned>(bits >> 63) << 15;
  if (std::isnan(value)) {
    return static_cast<std::uint16_t>(sign | format.infinity() | 1u << (format.mantissa_bits - 1));
  }
  if (std::isinf(value)) return static_cast<std::uint16_t>(sign | format.infinity());
  const int biased = static_cast<int>(bits >> kDoubleMantissaBits & 0x7FFu);
  // A subnormal double is far below the least number of either format.
  if (biased == 0) return static_cast<std::uint16_t>(sign);
  const int exponent = biased - kDoubleBias;
  const std::uint64_t implicit_one = std::uint64_t{1} << kDoubleMantissaBits;
  const std::uint64_t significand = (bits & (implicit_one - 1)) | implicit_one;
  const int below = format.least_exponent() - exponent;  // > 0: subnormal in the format
  const int shift = kDoubleMantissaBits - format.mantissa_bits + (below > 0 ? below : 0);
  const std::uint64_t rounded = shift_to_even(significand, shift);
  // A carry out of the mantissa runs into the exponent, which is just right, up to infinity.
  const std::uint64_t exponent_field =
      below > 0 ? 0 : static_cast<std::uint64_t>(-below) << format.mantissa_bits;
  const std::uint64_t magnitude = exponent_field + rounded;
  if (magnitude >= format.infinity()) return static_cast<std::uint16_t>(sign | format.infinity());
  return static_cast<std::uint16_t>(sign | magnitude);
}

double from_bits(std::uint16_t bits, DType dtype) {
  const Format format = format_of(dtype);
  const double sign = (bits & 0x8000u) != 0 ? -1.0 : 1.0;
  const unsigned magnitude = bits & 0x7FFFu;
  if (magnitude > format.infinity()) return std::numeric_limits<double>::quiet_NaN();
  if (magnitude == format.infinity()) return sign * std::numeric_limits<double>::infinity();
  const unsigned field = magnitude >> format.mantissa_bits;
  const unsigned mantissa = magnitude & ((1u << format.mantissa_bits) - 1u);
  const int exponent = format.least_exponent() + (field == 0 ? 0 : static_cast<int>(field) - 1);
  const unsigned significand = field == 0 ? mantissa : mantissa | 1u << format.mantissa_bits;
  return sign * std::ldexp(static_cast<double>(significand), exponent - format.mantissa_bits);
}

}  // namespace attnloom::reference
