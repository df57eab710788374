// SPDX-License-Identifier: Apache-2.0
// The checks that every tensor of a launch goes through, each with an error that names the tensor,
// what was wanted and what was given. Pure; thread-safe; allocates only to report an error.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "base/status.h"
#include "runtime/tensor.h"

namespace attnloom {

// One dimension as it must be: exactly `size`, or where `at_least` from it to what int32 holds, as
// kernels count rows and pages in.
struct Extent {
  std::int64_t size = 0;
  bool at_least = false;
};

// How a kernel reads the tensor.
enum class Access {
  kVectorRows,  // 16 bytes at a time: base and all strides but the last are multiples of 16 bytes,
                // the last is 1
  kElements,    // one element at a time, any strides
  kFlat,        // by address alone: strides must be those of a dense array
};

enum class Role { kInput, kOutput };  // an output may not overlap itself

Status check_tensor(std::string_view name, const TensorView& tensor, TensorType type,
                    std::initializer_list<Extent> shape, Access access, Role role);

// The same for a tensor of any rank whose dimensions are all free.
Status check_flat_tensor(std::string_view name, const TensorView& tensor, TensorType type,
                         std::int64_t least_elements);

// REQUIRES: both passed check_tensor or are not given. Refuses an output whose address range meets
// another tensor's, even where only the gaps of one hold the elements of the other.
Status check_apart(std::string_view output_name, const TensorView& output, std::string_view name,
                   const TensorView& tensor);

Status tensor_error(std::string_view name, std::string cause, std::string remedy = {});

// The type of a 16- or 8-bit spec dtype as a tensor.
TensorType tensor_type_of(DType type);

}  // namespace attnloom
