// SPDX-License-Identifier: Apache-2.0
#include "base/tensor_map.h"

#include <string>

namespace attnloom {
namespace {

constexpr std::uint64_t kMostElements = std::uint64_t{1} << 32;
constexpr std::uint64_t kMostStride = std::uint64_t{1} << 40;
constexpr std::uint32_t kMostBox = 256;

Status refuse(const char* field, const std::string& cause) {
  return make_error(Code::kArgumentInvalid, field, cause);
}

std::string at(const char* field, std::size_t k) {
  return std::string(field) + "[" + std::to_string(k) + "]";
}

Status check_box(const TensorMapShape& s) {
  for (std::size_t k = 0; k < static_cast<std::size_t>(s.rank); ++k) {
    if (s.box[k] == 0 || s.box[k] > kMostBox)
      return refuse("box", at("box", k) + " is " + std::to_string(s.box[k]) + "; 1 to 256 exist");
  }
  const std::uint64_t row = std::uint64_t{s.box[0]} * static_cast<std::uint64_t>(s.element_bytes);
  if (row % 16 != 0) {
    return refuse("box", "a row of the tile has " + std::to_string(row) +
                             " bytes, which is no multiple of 16");
  }
  const std::uint32_t pattern = swizzle_bytes(s.swizzle);
  if (pattern != 0 && row > pattern) {
    return refuse("swizzle", "a row of the tile has " + std::to_string(row) +
                                 " bytes; the pattern has " + std::to_string(pattern));
  }
  return ok_status();
}

}  // namespace

Status check_tensor_map(const TensorMapShape& s) {
  const int b = s.element_bytes;
  if (b != 1 && b != 2 && b != 4 && b != 8)
    return refuse("element_bytes", std::to_string(b) + " bytes an element; 1, 2, 4 or 8 exist");
  if (s.rank < 1 || s.rank > 5)
    return refuse("rank", std::to_string(s.rank) + " dimensions; 1 to 5 exist");
  if (s.address == 0 || s.address % 16 != 0)
    return refuse("address", "the tensor begins at " + std::to_string(s.address) +
                                 ", which is no multiple of 16");
  for (std::size_t k = 0; k < static_cast<std::size_t>(s.rank); ++k) {
    if (s.dims[k] == 0 || s.dims[k] > kMostElements)
      return refuse("dims",
                    at("dims", k) + " is " + std::to_string(s.dims[k]) + "; 1 to 2^32 exist");
    if (k == 0) continue;
    const std::uint64_t stride = s.stride_bytes[k - 1];
    if (stride % 16 != 0 || stride >= kMostStride)
      return refuse("stride_bytes", at("stride_bytes", k - 1) + " is " + std::to_string(stride) +
                                        "; multiples of 16 below 2^40 exist");
  }
  return check_box(s);
}

std::uint64_t tile_bytes(const TensorMapShape& s) {
  auto bytes = static_cast<std::uint64_t>(s.element_bytes);
  for (std::size_t k = 0; k < static_cast<std::size_t>(s.rank); ++k) bytes *= s.box[k];
  return bytes;
}

}  // namespace attnloom
