// SPDX-License-Identifier: Apache-2.0
#include "sim/tensor_map.h"

#include <cstring>

namespace attnloom::sim {
namespace {

struct Encoding {
  std::uint64_t magic;
  std::uint64_t address;
  std::uint64_t stride_bytes[4];
  std::uint32_t last[5];  // dims - 1
  std::uint16_t box[5];
  std::uint8_t element_bytes, rank, swizzle;
};
static_assert(sizeof(Encoding) <= kTensorMapBytes);

constexpr std::uint64_t kMagic = 0x70616d2d6d697361;

}  // namespace

Result<TensorMap> encode_tensor_map(const TensorMapShape& shape) {
  ATTNLOOM_CHECK(check_tensor_map(shape));
  Encoding e = {};
  e.magic = kMagic;
  e.address = shape.address;
  e.element_bytes = static_cast<std::uint8_t>(shape.element_bytes);
  e.rank = static_cast<std::uint8_t>(shape.rank);
  e.swizzle = static_cast<std::uint8_t>(shape.swizzle);
  for (std::size_t k = 0; k < e.rank; ++k) {
    e.last[k] = static_cast<std::uint32_t>(shape.dims[k] - 1);
    e.box[k] = static_cast<std::uint16_t>(shape.box[k]);
    if (k != 0) e.stride_bytes[k - 1] = shape.stride_bytes[k - 1];
  }
  TensorMap map;
  std::memcpy(map.bytes.data(), &e, sizeof e);
  return map;
}

std::optional<TensorMapShape> decode_tensor_map(std::span<const std::byte, kTensorMapBytes> bytes) {
  Encoding e;
  std::memcpy(&e, bytes.data(), sizeof e);
  if (e.magic != kMagic) return std::nullopt;
  TensorMapShape shape;
  shape.address = e.address;
  shape.element_bytes = e.element_bytes;
  shape.rank = e.rank;
  shape.swizzle = static_cast<TensorSwizzle>(e.swizzle);
  for (std::size_t k = 0; k < e.rank && k < 5; ++k) {
    shape.dims[k] = std::uint64_t{e.last[k]} + 1;
    shape.box[k] = e.box[k];
    if (k != 0) shape.stride_bytes[k - 1] = e.stride_bytes[k - 1];
  }
  return shape;
}

}  // namespace attnloom::sim
