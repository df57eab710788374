// SPDX-License-Identifier: Apache-2.0
// The random tensors of a case file (DESIGN §10): a value depends on the seed and its index alone,
// so that a case means the same numbers in every program that reads it. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace attnloom::reference {

enum class Generator { kNormal, kUniform };

std::optional<Generator> parse_generator(std::string_view name);  // "normal", "uniform"

// z = the splitmix64 finaliser of (seed * 2^32 + index + 1) * 0x9E3779B97F4A7C15, modulo 2^64.
std::uint64_t random_bits(std::uint64_t seed, std::uint64_t index);

// Element `index` before it is rounded to a dtype. kNormal: sqrt(-2 ln((hi + 1) / 2^32)) * cos(2 pi
// lo / 2^32); kUniform: hi / 2^32; hi and lo are the halves of random_bits.
double random_value(Generator generator, std::uint64_t seed, std::uint64_t index);

}  // namespace attnloom::reference
