// SPDX-License-Identifier: Apache-2.0
// NumPy's .npy files, as far as a case file uses them: little-endian f32, f16 and i32 in C order
// in, f32 out. Pure but for the one file named; thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace attnloom {

struct NpyArray {
  std::vector<std::int64_t> shape;
  std::vector<double> values;  // every stored value is exact in float64
};

// Errors: TENSOR_INVALID at `name`, with what the file holds.
Result<NpyArray> parse_npy(std::string_view bytes, const std::string& name);
Result<NpyArray> read_npy(const std::string& path);

// The bytes of a file of f32.
std::string npy_of_f32(std::span<const std::int64_t> shape, std::span<const double> values);
Status write_npy_f32(const std::string& path, std::span<const std::int64_t> shape,
                     std::span<const double> values);

}  // namespace attnloom
