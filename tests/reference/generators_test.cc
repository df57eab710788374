// SPDX-License-Identifier: Apache-2.0
#include "reference/generators.h"

#include <catch2/catch.hpp>
#include <cmath>

namespace attnloom::reference {
namespace {

TEST_CASE("The bits are splitmix64's") {
  // With seed 0 the counter runs as the published generator's does from state 0: its first outputs.
  CHECK(random_bits(0, 0) == 0xE220A8397B1DCDAFu);
  CHECK(random_bits(0, 1) == 0x6E789E6AA1B965F4u);
  CHECK(random_bits(0, 2) == 0x06C45D188009454Fu);
  // seed 1 starts where seed 0 is after 2^32 elements.
  CHECK(random_bits(1, 0) == random_bits(0, std::uint64_t{1} << 32));
}

TEST_CASE("uniform is the high half over 2^32") {
  CHECK(random_value(Generator::kUniform, 0, 0) == 0xE220A839p-32);
  CHECK(random_value(Generator::kUniform, 0, 2) == 0x06C45D18p-32);
}

TEST_CASE("normal is Box and Muller's cosine branch") {
  // Worked by hand from 0xE220A839 and 0x7B1DCDAF.
  const double radius = std::sqrt(-2 * std::log(0xE220A83Ap-32));
  const double angle = 6.283185307179586 * 0x7B1DCDAFp-32;
  CHECK(random_value(Generator::kNormal, 0, 0) == Approx(radius * std::cos(angle)).epsilon(1e-14));
}

TEST_CASE("The moments are those of the distributions") {
  constexpr int kCount = 200'000;
  double normal = 0, normal2 = 0, normal4 = 0, uniform = 0;
  for (int i = 0; i < kCount; ++i) {
    const double z = random_value(Generator::kNormal, 7, static_cast<std::uint64_t>(i));
    REQUIRE(std::isfinite(z));
    normal += z;
    normal2 += z * z;
    normal4 += z * z * z * z;
    uniform += random_value(Generator::kUniform, 7, static_cast<std::uint64_t>(i));
  }
  CHECK(normal / kCount == Approx(0).margin(0.01));
  CHECK(normal2 / kCount == Approx(1).margin(0.02));
  CHECK(normal4 / kCount == Approx(3).margin(0.15));
  CHECK(uniform / kCount == Approx(0.5).margin(0.005));
}

TEST_CASE("Names") {
  CHECK(parse_generator("normal") == Generator::kNormal);
  CHECK(parse_generator("uniform") == Generator::kUniform);
  CHECK_FALSE(parse_generator("gauss").has_value());
}

}  // namespace
}  // namespace attnloom::reference
