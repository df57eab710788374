// SPDX-License-Identifier: Apache-2.0
// The caller's arrays and tensors as the rooms below know them. Views: the caller's memory stays
// the caller's.
#pragma once

#include <cstdint>
#include <span>

#include "abi/boundary.h"
#include "engine/policy.h"
#include "plan/workload.h"
#include "runtime/cache_launch.h"
#include "runtime/launch.h"
#include "runtime/tensor.h"
#include "spec/spec.h"

namespace attnloom {

// ARGUMENT_INVALID at `path` for a number that is no policy.
Status check_policy(const alm_policy& policy, const char* path);
// REQUIRES: check_policy.
AcquireOptions acquire_options(alm_policy policy, std::uint32_t timeout_ms);

TensorView tensor_view(const alm_tensor& tensor);
inline DeviceAddress address_of(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer);
}

// An int32 array on the host. WORKLOAD_INVALID at `group` + `name` for another dtype or stride.
Status convert_array(const alm_index_array& given, const char* group, const char* name,
                     std::span<const std::int32_t>* out);

// `out` refers to the caller's arrays. WORKLOAD_INVALID for arrays of another dtype or stride, by
// name.
Status convert_workload(const Spec& spec, const alm_workload* given, Workload* out);

// Allocates nothing once `out` has seen as many params.
Status convert_attention(const alm_attention* given, AttentionTensors* out);
Status convert_append(const alm_append* given, AppendTensors* out);
Status convert_page_copy(const alm_page_copy* given, PageCopyTensors* out);

}  // namespace attnloom
