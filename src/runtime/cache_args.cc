// SPDX-License-Identifier: Apache-2.0
#include "runtime/cache_args.h"

#include <string>

#include "runtime/tensor_checks.h"

namespace attnloom {

Status set_scale(const Spec& spec, std::int64_t kv_heads, std::string_view name,
                 const TensorView& tensor, const UnusedScale& unused, const float*& pointer) {
  const KvScale scale = spec.variant.kv_scale;
  if (scale == KvScale::kNone) {
    return tensor.given()
               ? tensor_error(name, std::string(unused.cause), std::string(unused.remedy))
               : ok_status();
  }
  ATTNLOOM_CHECK(check_tensor(name, tensor, TensorType::kF32,
                              {{scale == KvScale::kHead ? kv_heads : 1}}, Access::kFlat,
                              Role::kInput));
  pointer = device_pointer<const float>(tensor.data);
  return ok_status();
}

}  // namespace attnloom
