// SPDX-License-Identifier: Apache-2.0
// What attention and the cache kernels take of a cache alike: the strides of its pages and the
// scales of its values. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"
#include "runtime/tensor.h"
#include "spec/spec.h"

namespace attnloom {

// REQUIRES: both passed check_tensor with the dimensions [page][token][head][dim].
template <class Args>
void set_page_strides(const TensorView& k, const TensorView& v, Args& args) {
  args.k_page_stride = k.strides[0];
  args.k_token_stride = k.strides[1];
  args.k_head_stride = k.strides[2];
  args.v_page_stride = v.strides[0];
  args.v_token_stride = v.strides[1];
  args.v_head_stride = v.strides[2];
}

// What to say of a scale that is given to a spec without scales. Literals: a run allocates nothing.
struct UnusedScale {
  std::string_view cause;
  std::string_view remedy;
};

// The scales of K or of V, one or one a KV head, by the spec's kv_scale.
Status set_scale(const Spec& spec, std::int64_t kv_heads, std::string_view name,
                 const TensorView& tensor, const UnusedScale& unused, const float*& pointer);

}  // namespace attnloom
