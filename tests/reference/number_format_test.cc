// SPDX-License-Identifier: Apache-2.0
#include "reference/number_format.h"

#include <catch2/catch.hpp>
#include <cfenv>
#include <cmath>
#include <limits>

namespace attnloom::reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST_CASE("f16: known bits") {
  const auto bits = [](double value) { return to_bits(value, DType::kF16); };
  CHECK(bits(0.0) == 0x0000);
  CHECK(bits(-0.0) == 0x8000);
  CHECK(bits(1.0) == 0x3C00);
  CHECK(bits(-2.0) == 0xC000);
  CHECK(bits(1.0 / 3.0) == 0x3555);
  CHECK(bits(65504.0) == 0x7BFF);
  CHECK(bits(65519.99) == 0x7BFF);
  CHECK(bits(65520.0) == 0x7C00);  // the tie above the largest is infinity
  CHECK(bits(1e300) == 0x7C00);
  CHECK(bits(-kInfinity) == 0xFC00);
  CHECK(bits(kNan) == 0x7E00);
  CHECK(bits(0x1p-14) == 0x0400);
  CHECK(bits(0x1p-24) == 0x0001);
  CHECK(bits(0x1p-25) == 0x0000);      // a tie goes to even
  CHECK(bits(0x1.8p-24) == 0x0002);    // and here upwards
  CHECK(bits(0x1.001p-25) == 0x0001);  // just over the tie
  CHECK(bits(0x1.ff8p-15) == 0x03FF);
  CHECK(bits(0x1.ffcp-15) == 0x0400);  // rounds up into the normal numbers
  CHECK(bits(5e-324) == 0x0000);
  CHECK(bits(1.0 + 0x1p-11) == 0x3C00);
  CHECK(bits(1.0 + 0x1.8p-10) == 0x3C02);
  CHECK(bits(2.0 - 0x1p-12) == 0x4000);
  // Rounded twice, through float32, this would become the tie and go down.
  CHECK(bits(1.0 + 0x1p-11 + 0x1p-40) == 0x3C01);
}

TEST_CASE("bf16: known bits") {
  const auto bits = [](double value) { return to_bits(value, DType::kBf16); };
  CHECK(bits(1.0) == 0x3F80);
  CHECK(bits(-1.0 / 3.0) == 0xBEAB);
  CHECK(bits(1.0 + 0x1p-8) == 0x3F80);
  CHECK(bits(1.0 + 0x1.8p-7) == 0x3F82);
  CHECK(bits(0x1.fep127) == 0x7F7F);
  CHECK(bits(0x1.ffp127) == 0x7F80);
  CHECK(bits(kNan) == 0x7FC0);
  CHECK(bits(0x1p-126) == 0x0080);
  CHECK(bits(0x1p-133) == 0x0001);
  CHECK(bits(0x1p-134) == 0x0000);
  CHECK(bits(-1e-300) == 0x8000);
}

TEST_CASE("E4M3: known bits") {
  const auto bits = [](double value) { return to_bits(value, DType::kE4m3); };
  CHECK(bits(0.0) == 0x00);
  CHECK(bits(-0.0) == 0x80);
  CHECK(bits(1.0) == 0x38);
  CHECK(bits(-1.5) == 0xBC);
  CHECK(bits(448.0) == 0x7E);
  CHECK(bits(1e9) == 0x7E);  // saturates; the format has no infinity
  CHECK(bits(-kInfinity) == 0xFE);
  CHECK(bits(464.0) == 0x7E);  // the tie below where a NaN would come next
  CHECK(bits(kNan) == 0x7F);
  CHECK(bits(0x1p-6) == 0x08);
  CHECK(bits(0x1p-9) == 0x01);
  CHECK(bits(0x1p-10) == 0x00);   // a tie goes to even
  CHECK(bits(0x1.8p-9) == 0x02);  // and here upwards
  CHECK(bits(0x1.ep-7) == 0x08);  // rounds up into the normal numbers
  CHECK(bits(1.0 + 0x1p-4) == 0x38);
  CHECK(bits(1.0 + 0x1.8p-3) == 0x3A);
  CHECK(std::isnan(from_bits(0x7F, DType::kE4m3)));
  CHECK(std::isnan(from_bits(0xFF, DType::kE4m3)));
}

TEST_CASE("E5M2: known bits") {
  const auto bits = [](double value) { return to_bits(value, DType::kE5m2); };
  CHECK(bits(1.0) == 0x3C);
  CHECK(bits(-57344.0) == 0xFB);
  CHECK(bits(1e9) == 0x7B);  // saturates
  CHECK(bits(kInfinity) == 0x7C);
  CHECK(bits(-kInfinity) == 0xFC);
  CHECK(bits(kNan) == 0x7F);
  CHECK(bits(0x1p-16) == 0x01);
  CHECK(bits(0x1p-17) == 0x00);
  CHECK(bits(1.0 + 0x1p-3) == 0x3C);
  for (unsigned code = 0x7D; code <= 0x7F; ++code)
    CHECK(std::isnan(from_bits(static_cast<std::uint16_t>(code), DType::kE5m2)));
}

TEST_CASE("Every pattern survives the way there and back") {
  for (const DType dtype : {DType::kF16, DType::kBf16}) {
    for (unsigned pattern = 0; pattern < 65536; ++pattern) {
      const double value = from_bits(static_cast<std::uint16_t>(pattern), dtype);
      if (std::isnan(value)) continue;
      REQUIRE(to_bits(value, dtype) == pattern);
    }
  }
  for (const DType dtype : {DType::kE4m3, DType::kE5m2}) {
    int numbers = 0;
    for (unsigned pattern = 0; pattern < 256; ++pattern) {
      const double value = from_bits(static_cast<std::uint16_t>(pattern), dtype);
      if (std::isnan(value)) continue;
      REQUIRE(to_bits(value, dtype) == pattern);
      ++numbers;
    }
    CHECK(numbers == (dtype == DType::kE4m3 ? 254 : 250));
  }
}

TEST_CASE("bf16 patterns are the upper halves of float32") {
  for (unsigned pattern = 0; pattern < 65536; ++pattern) {
    const auto as_float = std::bit_cast<float>(pattern << 16);
    const double value = from_bits(static_cast<std::uint16_t>(pattern), DType::kBf16);
    if (std::isnan(as_float)) {
      REQUIRE(std::isnan(value));
    } else {
      REQUIRE(value == static_cast<double>(as_float));
    }
  }
}

TEST_CASE("The rounding mode of the process does not matter") {
  std::fesetround(FE_UPWARD);
  const auto up = to_bits(1.0 + 0x1p-12, DType::kF16);
  std::fesetround(FE_TONEAREST);
  CHECK(up == 0x3C00);
}

}  // namespace
}  // namespace attnloom::reference
