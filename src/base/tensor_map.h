// SPDX-License-Identifier: Apache-2.0
// What a tensor map says, whoever encodes it: a tile of a strided tensor that one bulk copy moves
// between global and shared memory. Plain data.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/status.h"

namespace attnloom {

inline constexpr std::size_t kTensorMapBytes = 128;

// The encoding that a kernel takes as a parameter, of the device that made it. Where it lies among
// the parameters must be a multiple of 64 bytes; the type does not say so, because a value of such
// an alignment is passed differently by different compilers.
struct TensorMap {
  std::array<std::byte, kTensorMapBytes> bytes = {};
};

enum class TensorSwizzle : std::uint8_t { kNone, k32, k64, k128 };

inline std::uint32_t swizzle_bytes(TensorSwizzle swizzle) {
  return swizzle == TensorSwizzle::kNone ? 0 : 16u << static_cast<unsigned>(swizzle);
}

// Dimension 0 is contiguous. What a tile has beyond the tensor is zero.
struct TensorMapShape {
  std::uint64_t address = 0;
  int element_bytes = 2;
  int rank = 0;                                    // 1 to 5
  std::array<std::uint64_t, 5> dims = {};          // elements
  std::array<std::uint64_t, 4> stride_bytes = {};  // of dimensions 1 ..
  std::array<std::uint32_t, 5> box = {};           // elements of a tile
  TensorSwizzle swizzle = TensorSwizzle::kNone;
};

// What no device encodes: ARGUMENT_INVALID, with the field as path.
Status check_tensor_map(const TensorMapShape& shape);
std::uint64_t tile_bytes(const TensorMapShape& shape);

}  // namespace attnloom
