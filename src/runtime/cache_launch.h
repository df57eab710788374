// SPDX-License-Identifier: Apache-2.0
// Tensors -> the argument blocks of append, append_rope and page_copy, with every tensor checked
// first. Pure; thread-safe; allocates only to report an error and where host mirrors are given.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.h"
#include "kernel_templates/loom/plan.cuh"
#include "runtime/tensor.h"
#include "spec/spec.h"

namespace attnloom {

// Copies on the host of index arrays that lie on the device. An empty one is not given.
struct AppendMirrors {
  std::span<const std::int32_t> batch_indices;
  std::span<const std::int32_t> positions;
  std::span<const std::int32_t> page_indptr;
  std::span<const std::int32_t> page_indices;
};

struct AppendTensors {
  TensorView key;            // [tokens][kv_heads][head_dim.qk]
  TensorView value;          // [tokens][kv_heads][head_dim.vo]
  TensorView batch_indices;  // i32 [tokens]; a negative one marks a row that is not used
  TensorView positions;      // i32 [tokens]
  TensorView page_indptr;    // i32 [batch + 1]
  TensorView page_indices;   // i32 [>= the last page_indptr]
  TensorView k_cache;        // [pages][page_size][kv_heads][head_dim.qk]
  TensorView v_cache;        // as k_cache with head_dim.vo
  TensorView k_scale;        // f32 [1] or, with kv_scale "head", [kv_heads]
  TensorView v_scale;
  TensorView q;             // [tokens][q_heads][head_dim.qk], optional, append_rope only
  TensorView q_out;         // as q; may be q itself
  float rope_scale = 0.0f;  // 0: 1; append_rope only
  float rope_theta = 0.0f;  // 0: 10000; append_rope only
  AppendMirrors host;
};

// Errors: TENSOR_INVALID with the tensor's name: as attention_args, scales where the spec has none
// and none where it has them, an output in the address range of an input. ARGUMENT_INVALID for
// rope_scale and rope_theta. WORKLOAD_INVALID with the entry of a mirror that names no place of the
// cache, or the place of another row.
// REQUIRES: the spec is one of append or append_rope.
Result<loom::AppendRopeArgs> append_args(const Spec& spec, const AppendTensors& tensors);

struct PageCopyTensors {
  TensorView pairs;                          // i32 [count][2]: page to read, page to write
  TensorView k_cache;                        // [pages][page_size][kv_heads][head_dim.qk]
  TensorView v_cache;                        // as k_cache with head_dim.vo
  std::span<const std::int32_t> host_pairs;  // a copy of `pairs`, or empty
};

// Errors: as above. A mirror is refused when a page lies outside of the cache, when a page that is
// written is also read, or is written twice: copies run in any order.
Result<loom::PageCopyArgs> page_copy_args(const Spec& spec, const PageCopyTensors& tensors);

}  // namespace attnloom
