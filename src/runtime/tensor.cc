// SPDX-License-Identifier: Apache-2.0
#include "runtime/tensor.h"

#include <array>

namespace attnloom {
namespace {

struct TensorTypeRow {
  TensorType type;
  std::string_view name;
  int bytes;
};

constexpr std::array kRows = {
    TensorTypeRow{TensorType::kNone, "none", 0}, TensorTypeRow{TensorType::kF16, "f16", 2},
    TensorTypeRow{TensorType::kBf16, "bf16", 2}, TensorTypeRow{TensorType::kF32, "f32", 4},
    TensorTypeRow{TensorType::kE4m3, "e4m3", 1}, TensorTypeRow{TensorType::kE5m2, "e5m2", 1},
    TensorTypeRow{TensorType::kI32, "i32", 4},   TensorTypeRow{TensorType::kU8, "u8", 1},
    TensorTypeRow{TensorType::kI64, "i64", 8},
};

}  // namespace

std::string_view tensor_type_name(TensorType type) {
  for (const TensorTypeRow& row : kRows)
    if (row.type == type) return row.name;
  return "unknown";
}

std::string tensor_type_text(TensorType type) {
  for (const TensorTypeRow& row : kRows)
    if (row.type == type) return std::string(row.name);
  return "unknown dtype " + std::to_string(static_cast<int>(type));
}

TensorType pointee_of(ParamType type) {
  switch (type) {
    case ParamType::kPtrF32:
      return TensorType::kF32;
    case ParamType::kPtrF16:
      return TensorType::kF16;
    case ParamType::kPtrBf16:
      return TensorType::kBf16;
    case ParamType::kPtrI32:
      return TensorType::kI32;
    case ParamType::kPtrU8:
      return TensorType::kU8;
    default:
      return TensorType::kNone;
  }
}

int bytes_of(TensorType type) {
  for (const TensorTypeRow& row : kRows)
    if (row.type == type) return row.bytes;
  return 0;
}

TensorView dense_tensor(TensorType type, std::span<const std::int64_t> shape, DeviceAddress data) {
  TensorView view{.data = data, .type = type};
  for (const std::int64_t extent : shape) view.shape[view.rank++] = extent;
  std::int64_t stride = 1;
  for (int i = view.rank - 1; i >= 0; --i) {
    view.strides[i] = stride;
    stride *= view.shape[i];
  }
  return view;
}

}  // namespace attnloom
