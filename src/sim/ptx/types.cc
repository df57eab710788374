// SPDX-License-Identifier: Apache-2.0
#include "sim/ptx/types.h"

#include <array>

namespace attnloom::sim {
namespace {

struct Row {
  std::string_view name;
  Type type;
  int bytes;
  bool is_signed;
  bool is_float;
};

constexpr std::array<Row, 27> kRows = {{
    {"pred", Type::kPred, 1, false, false},    {"b8", Type::kB8, 1, false, false},
    {"u8", Type::kU8, 1, false, false},        {"s8", Type::kS8, 1, true, false},
    {"b16", Type::kB16, 2, false, false},      {"u16", Type::kU16, 2, false, false},
    {"s16", Type::kS16, 2, true, false},       {"f16", Type::kF16, 2, false, true},
    {"bf16", Type::kBf16, 2, false, true},     {"b32", Type::kB32, 4, false, false},
    {"u32", Type::kU32, 4, false, false},      {"s32", Type::kS32, 4, true, false},
    {"f32", Type::kF32, 4, false, true},       {"f16x2", Type::kF16x2, 4, false, true},
    {"bf16x2", Type::kBf16x2, 4, false, true}, {"u16x2", Type::kU16x2, 4, false, false},
    {"s16x2", Type::kS16x2, 4, true, false},   {"tf32", Type::kTf32, 4, false, true},
    {"b64", Type::kB64, 8, false, false},      {"u64", Type::kU64, 8, false, false},
    {"s64", Type::kS64, 8, true, false},       {"f64", Type::kF64, 8, false, true},
    {"b128", Type::kB128, 16, false, false},   {"e4m3", Type::kE4m3, 1, false, true},
    {"e5m2", Type::kE5m2, 1, false, true},     {"e4m3x2", Type::kE4m3x2, 2, false, true},
    {"e5m2x2", Type::kE5m2x2, 2, false, true},
}};

const Row& row(Type type) {
  return kRows[static_cast<std::size_t>(type)];
}

}  // namespace

std::optional<Type> parse_type(std::string_view name) {
  for (const Row& r : kRows) {
    if (r.name == name) return r.type;
  }
  return std::nullopt;
}

int type_bytes(Type type) {
  return row(type).bytes;
}
bool is_signed(Type type) {
  return row(type).is_signed;
}
bool is_float(Type type) {
  return row(type).is_float;
}

}  // namespace attnloom::sim
