// SPDX-License-Identifier: Apache-2.0
// TensorView: a caller's tensor on the device, by address, shape and strides. A view: owns nothing.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "runtime/backend.h"
#include "spec/types.h"

namespace attnloom {

// Numbers are those of alm_dtype.
enum class TensorType : int {
  kNone = 0,
  kF16 = 1,
  kBf16 = 2,
  kF32 = 3,
  kE4m3 = 4,
  kE5m2 = 5,
  kI32 = 6,
  kU8 = 7,
  kI64 = 8
};
std::string_view tensor_type_name(TensorType type);  // "bf16"
// The name, or the number of a value that is no TensorType: for errors.
std::string tensor_type_text(TensorType type);
int bytes_of(TensorType type);
// Of the elements behind a pointer param; kNone of a scalar one.
TensorType pointee_of(ParamType type);

// Device addresses are numbers on the host; only the kernel follows them.
template <class T>
T* device_pointer(DeviceAddress address) {
  return reinterpret_cast<T*>(static_cast<std::uintptr_t>(address));
}

struct TensorView {
  DeviceAddress data = 0;
  TensorType type = TensorType::kNone;
  int rank = 0;
  std::int64_t shape[5] = {};
  std::int64_t strides[5] = {};  // elements
  bool given() const { return type != TensorType::kNone; }
};

// A view whose rows lie one behind the other, the last dimension contiguous. REQUIRES: at most five
// dimensions.
TensorView dense_tensor(TensorType type, std::span<const std::int64_t> shape, DeviceAddress data);

}  // namespace attnloom
