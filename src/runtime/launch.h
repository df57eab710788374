// SPDX-License-Identifier: Apache-2.0
// Plan x tensors -> the argument block of a launch, with every tensor checked first: bad input
// never reaches a launch. Pure; thread-safe; allocates only to report an error.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "kernel_templates/loom/plan.cuh"
#include "plan/plan.h"
#include "runtime/tensor.h"
#include "spec/spec.h"

namespace attnloom {

struct PointerParam {
  std::string name;
  TensorView tensor;
};

struct AttentionTensors {
  TensorView q;    // [qo_tokens][q_heads][head_dim.qk]
  TensorView k;    // ragged and bsr [kv_tokens][kv_heads][head_dim.qk]; padded
                   // [slots][capacity][..][..]; paged [pages][page_size][..][..]
  TensorView v;    // as k with head_dim.vo. HND caches: pass the same shape with their strides
  TensorView o;    // [qo_tokens][q_heads][head_dim.vo]
  TensorView lse;  // f32 [qo_tokens][q_heads], optional
  TensorView page_indices;   // i32 [>= plan.kv_rows], paged only
  TensorView block_indices;  // i32 [>= plan.block_entries], bsr only
  TensorView custom_mask;    // u8 [>= plan.mask_bytes], with mask.custom only
  std::vector<PointerParam> params;
  TensorView k_scale;  // f32 [1] or [kv_heads], as the spec's kv_scale says; without it not given
  TensorView v_scale;
  DeviceAddress workspace = 0;
};

// Errors: TENSOR_INVALID with the tensor's name: dtype, rank, shape, last stride, 16-byte alignment
// of base and strides of q, k, v and o, a tensor missing or not used by the spec, lse with softmax
// false, an extent past 64 bits, an output with two elements in one place, o or lse in the address
// range of q, k or v.
Result<loom::AttentionArgs> attention_args(const Spec& spec, const Plan& plan, int q_heads,
                                           int kv_heads, std::int64_t pool_pages,
                                           const AttentionTensors& tensors);

// o may lie in place of the first state; nothing else may overlap.
struct MergeTensors {
  TensorView o_in;    // [states][tokens][heads][head_dim.vo]
  TensorView lse_in;  // f32 [states][tokens][heads]
  TensorView o;       // [tokens][heads][head_dim.vo]
  TensorView lse;     // f32 [tokens][heads], optional
};
Result<loom::MergeArgs> merge_args(const Spec& spec, const MergeTensors& tensors);

}  // namespace attnloom
