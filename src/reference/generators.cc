// SPDX-License-Identifier: Apache-2.0
#include "reference/generators.h"

#include <cmath>
#include <numbers>

namespace attnloom::reference {

std::optional<Generator> parse_generator(std::string_view name) {
  if (name == "normal") return Generator::kNormal;
  if (name == "uniform") return Generator::kUniform;
  return std::nullopt;
}

std::uint64_t random_bits(std::uint64_t seed, std::uint64_t index) {
  std::uint64_t z = ((seed << 32) + index + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

double random_value(Generator generator, std::uint64_t seed, std::uint64_t index) {
  constexpr double kStep = 0x1p-32;
  const std::uint64_t bits = random_bits(seed, index);
  const auto high = static_cast<double>(bits >> 32);
  if (generator == Generator::kUniform) return high * kStep;
  const auto low = static_cast<double>(bits & 0xFFFFFFFFu);
  // high + 1: the logarithm of 0 never arises.
  const double radius = std::sqrt(-2.0 * std::log((high + 1.0) * kStep));
  return radius * std::cos(2.0 * std::numbers::pi * low * kStep);
}

}  // namespace attnloom::reference
