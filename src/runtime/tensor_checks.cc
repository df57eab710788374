// SPDX-License-Identifier: Apache-2.0
#include "runtime/tensor_checks.h"

#include <limits>
#include <string>

namespace attnloom {
namespace {

constexpr int kVectorBytes = 16;  // one cp.async or ld.global.v4
constexpr int kMaxRank = 5;

std::string shape_text(const TensorView& tensor) {
  std::string text = "[";
  for (int i = 0; i < tensor.rank; ++i) text += (i ? ", " : "") + std::to_string(tensor.shape[i]);
  return text + "]";
}

std::string indexed(std::string_view name, const char* field, int dimension) {
  return std::string(name) + "." + field + "[" + std::to_string(dimension) + "]";
}

bool is_empty(const TensorView& tensor) {
  for (int i = 0; i < tensor.rank; ++i)
    if (tensor.shape[i] == 0) return true;
  return false;
}

Status check_head(std::string_view name, const TensorView& tensor, TensorType type) {
  if (!tensor.given()) return tensor_error(name, "the spec needs this tensor; none was given");
  if (tensor.type != type) {
    return tensor_error(name, "dtype must be " + std::string(tensor_type_name(type)) + ", given " +
                                  tensor_type_text(tensor.type));
  }
  if (tensor.rank < 0 || tensor.rank > kMaxRank)
    return tensor_error(name, "rank must be 0 to 5, given " + std::to_string(tensor.rank));
  for (int i = 0; i < tensor.rank; ++i) {
    if (tensor.shape[i] < 0)
      return tensor_error(indexed(name, "shape", i),
                          "must not be negative, given " + std::to_string(tensor.shape[i]));
  }
  if (tensor.data == 0 && !is_empty(tensor)) return tensor_error(name, "address is null");
  const int alignment = bytes_of(type);
  if (tensor.data % static_cast<unsigned>(alignment) != 0) {
    return tensor_error(name, "address must be a multiple of " + std::to_string(alignment) +
                                  " bytes, given remainder " +
                                  std::to_string(tensor.data % static_cast<unsigned>(alignment)));
  }
  return ok_status();
}

Status check_shape(std::string_view name, const TensorView& tensor,
                   std::initializer_list<Extent> shape) {
  if (tensor.rank != static_cast<int>(shape.size())) {
    return tensor_error(name, "rank must be " + std::to_string(shape.size()) + ", given " +
                                  std::to_string(tensor.rank) + " with shape " +
                                  shape_text(tensor));
  }
  int dimension = 0;
  for (const Extent& want : shape) {
    const std::int64_t given = tensor.shape[dimension];
    if (want.at_least && given > std::numeric_limits<std::int32_t>::max()) {
      return tensor_error(indexed(name, "shape", dimension), "must be at most 2147483647, given " +
                                                                 std::to_string(given) +
                                                                 " in shape " + shape_text(tensor));
    }
    if (given < want.size || (!want.at_least && given != want.size)) {
      return tensor_error(indexed(name, "shape", dimension),
                          std::string("must be ") + (want.at_least ? "at least " : "") +
                              std::to_string(want.size) + ", given " + std::to_string(given) +
                              " in shape " + shape_text(tensor));
    }
    ++dimension;
  }
  return ok_status();
}

// From the first byte to behind the last; 0 without elements, -1 past 64 bits.
// REQUIRES: strides of dimensions with several elements are not negative.
std::int64_t span_bytes(const TensorView& tensor) {
  if (is_empty(tensor)) return 0;
  std::int64_t elements = 1;
  for (int i = 0; i < tensor.rank; ++i) {
    std::int64_t reach = 0;
    if (tensor.shape[i] > 1 &&
        (__builtin_mul_overflow(tensor.shape[i] - 1, tensor.strides[i], &reach) ||
         __builtin_add_overflow(elements, reach, &elements)))
      return -1;
  }
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(elements, std::int64_t{bytes_of(tensor.type)}, &bytes)) return -1;
  DeviceAddress end = 0;
  return __builtin_add_overflow(tensor.data, static_cast<DeviceAddress>(bytes), &end) ? -1 : bytes;
}

Status check_span(std::string_view name, const TensorView& tensor) {
  if (span_bytes(tensor) >= 0) return ok_status();
  std::string strides;
  for (int i = 0; i < tensor.rank; ++i)
    strides += (i ? ", " : "") + std::to_string(tensor.strides[i]);
  return tensor_error(name, "must end within 64-bit addresses; given shape " + shape_text(tensor) +
                                " with strides [" + strides + "]");
}

// From the smallest stride up, each must step over all that the smaller ones reach. Nested layouts,
// the only ones in use, pass in any order of dimensions.
Status check_no_overlap(std::string_view name, const TensorView& tensor) {
  if (is_empty(tensor)) return ok_status();
  bool seen[kMaxRank] = {};
  std::int64_t reach = 1;  // elements; cannot overflow behind check_span
  for (int round = 0; round < tensor.rank; ++round) {
    int next = -1;
    for (int i = tensor.rank - 1; i >= 0; --i) {
      if (seen[i] || tensor.shape[i] <= 1) continue;
      if (next < 0 || tensor.strides[i] < tensor.strides[next]) next = i;
    }
    if (next < 0) break;
    seen[next] = true;
    const std::int64_t stride = tensor.strides[next];
    if (stride < reach) {
      return tensor_error(indexed(name, "strides", next),
                          "must be at least " + std::to_string(reach) + ", given " +
                              std::to_string(stride) + ": several results would share one place");
    }
    reach += (tensor.shape[next] - 1) * stride;
  }
  return ok_status();
}

// The stride of a dimension with one element is never multiplied by anything but 0, so it may be
// whatever a framework left there.
Status check_strides(std::string_view name, const TensorView& tensor, Access access, Role role) {
  for (int i = 0; i < tensor.rank; ++i) {
    if (tensor.shape[i] <= 1) continue;
    const std::int64_t stride = tensor.strides[i];
    if (stride < 0)
      return tensor_error(indexed(name, "strides", i),
                          "must not be negative, given " + std::to_string(stride));
    if (role == Role::kOutput && stride == 0)
      return tensor_error(indexed(name, "strides", i),
                          "is 0: several results would share one place");
    if (access != Access::kVectorRows) continue;
    if (i == tensor.rank - 1 && stride != 1) {
      return tensor_error(indexed(name, "strides", i), "must be 1, given " + std::to_string(stride),
                          "pass a tensor whose last dimension is contiguous");
    }
    if (i < tensor.rank - 1 && stride % kVectorBytes * bytes_of(tensor.type) % kVectorBytes != 0) {
      return tensor_error(indexed(name, "strides", i),
                          "must be a multiple of 16 bytes, given " + std::to_string(stride) +
                              " elements of " + std::to_string(bytes_of(tensor.type)) + " bytes");
    }
  }
  if (access == Access::kVectorRows && tensor.data % kVectorBytes != 0) {
    return tensor_error(name, "address must be a multiple of 16 bytes, given remainder " +
                                  std::to_string(tensor.data % kVectorBytes));
  }
  return ok_status();
}

Status check_dense(std::string_view name, const TensorView& tensor) {
  std::int64_t dense = 1;
  for (int i = tensor.rank - 1; i >= 0; --i) {
    if (tensor.shape[i] > 1 && tensor.strides[i] != dense) {
      return tensor_error(indexed(name, "strides", i),
                          "must be " + std::to_string(dense) + " (dense), given " +
                              std::to_string(tensor.strides[i]),
                          "pass a contiguous copy");
    }
    if (__builtin_mul_overflow(dense, tensor.shape[i], &dense))
      return tensor_error(
          name, "has more elements than 64 bits count, given shape " + shape_text(tensor));
  }
  return ok_status();
}

}  // namespace

Status tensor_error(std::string_view name, std::string cause, std::string remedy) {
  return make_error(Code::kTensorInvalid, std::string(name), std::move(cause), std::move(remedy));
}

Status check_tensor(std::string_view name, const TensorView& tensor, TensorType type,
                    std::initializer_list<Extent> shape, Access access, Role role) {
  ATTNLOOM_CHECK(check_head(name, tensor, type));
  ATTNLOOM_CHECK(check_shape(name, tensor, shape));
  if (access == Access::kFlat) return check_dense(name, tensor);
  ATTNLOOM_CHECK(check_strides(name, tensor, access, role));
  ATTNLOOM_CHECK(check_span(name, tensor));
  return role == Role::kOutput ? check_no_overlap(name, tensor) : ok_status();
}

Status check_apart(std::string_view output_name, const TensorView& output, std::string_view name,
                   const TensorView& tensor) {
  if (!output.given() || !tensor.given()) return ok_status();
  const auto output_bytes = static_cast<DeviceAddress>(span_bytes(output));
  const auto bytes = static_cast<DeviceAddress>(span_bytes(tensor));
  if (output_bytes == 0 || bytes == 0 || output.data + output_bytes <= tensor.data ||
      tensor.data + bytes <= output.data)
    return ok_status();
  return tensor_error(output_name,
                      "must not overlap " + std::string(name) + "; given " +
                          std::to_string(output_bytes) + " bytes whose first lies at " +
                          std::string(name) + (output.data < tensor.data ? " - " : " + ") +
                          std::to_string(output.data < tensor.data ? tensor.data - output.data
                                                                   : output.data - tensor.data),
                      "pass " + std::string(output_name) + " in memory of its own");
}

Status check_flat_tensor(std::string_view name, const TensorView& tensor, TensorType type,
                         std::int64_t least_elements) {
  ATTNLOOM_CHECK(check_head(name, tensor, type));
  ATTNLOOM_CHECK(check_dense(name, tensor));
  std::int64_t elements = 1;
  for (int i = 0; i < tensor.rank; ++i) elements *= tensor.shape[i];
  if (elements < least_elements) {
    return tensor_error(name, "must hold at least " + std::to_string(least_elements) +
                                  " elements, given shape " + shape_text(tensor));
  }
  return ok_status();
}

TensorType tensor_type_of(DType type) {
  switch (type) {
    case DType::kF16:
      return TensorType::kF16;
    case DType::kBf16:
      return TensorType::kBf16;
    case DType::kE4m3:
      return TensorType::kE4m3;
    case DType::kE5m2:
      return TensorType::kE5m2;
  }
  return TensorType::kNone;
}

}  // namespace attnloom
