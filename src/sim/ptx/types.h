// SPDX-License-Identifier: Apache-2.0
// The types of PTX and what the decoder has to know about each. Plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace attnloom::sim {

enum class Type : std::uint8_t {
  kPred,
  kB8,
  kU8,
  kS8,
  kB16,
  kU16,
  kS16,
  kF16,
  kBf16,
  kB32,
  kU32,
  kS32,
  kF32,
  kF16x2,
  kBf16x2,
  kU16x2,
  kS16x2,
  kTf32,
  kB64,
  kU64,
  kS64,
  kF64,
  kB128,
  kE4m3,
  kE5m2,
  kE4m3x2,
  kE5m2x2,
};

std::optional<Type> parse_type(std::string_view name);  // "f16x2"
int type_bytes(Type type);                              // kPred: 1
bool is_signed(Type type);
bool is_float(Type type);

// A value narrower than 16 bits lives in a 16-bit register.
inline int register_bytes(Type type) {
  int bytes = type_bytes(type);
  return type == Type::kPred || bytes > 1 ? bytes : 2;
}

enum class Space : std::uint8_t { kGeneric, kGlobal, kShared, kConst, kParam, kLocal };

}  // namespace attnloom::sim
