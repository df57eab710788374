// SPDX-License-Identifier: Apache-2.0
// How the simulated device writes a tensor map into the 128 bytes that a kernel gets, and the
// swizzle patterns of shared memory. Only the simulated device makes and reads this encoding.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/tensor_map.h"

namespace attnloom::sim {

// Errors: ARGUMENT_INVALID, as check_tensor_map.
Result<TensorMap> encode_tensor_map(const TensorMapShape& shape);
// Nothing if the bytes are no tensor map of this device.
std::optional<TensorMapShape> decode_tensor_map(std::span<const std::byte, kTensorMapBytes> bytes);

// Pieces of 16 bytes change places within rows of `pattern_bytes`, by where 128-byte lines lie.
inline std::uint32_t swizzled(std::uint32_t address, std::uint32_t pattern_bytes) {
  std::uint32_t mask = pattern_bytes == 0 ? 0 : (pattern_bytes - 16) & 0x70;
  return address ^ (address >> 3 & mask);
}

}  // namespace attnloom::sim
