// SPDX-License-Identifier: Apache-2.0
#include "engine/captured.h"

#include <string>

namespace attnloom {

void CapturedRuns::add(const Spec& spec, int kernel, const AttentionTensors& tensors) {
  kernel_ = kernel;
  qo_tokens_.take("q", tensors.q.shape[0]);
  qo_tokens_.take("o", tensors.o.shape[0]);
  if (tensors.lse.given()) qo_tokens_.take("lse", tensors.lse.shape[0]);
  if (spec.variant.mask.custom) mask_bytes_.take("custom_mask", tensors.custom_mask.shape[0]);
  switch (spec.layout.kv) {
    case KvLayout::kBsr:
      block_entries_.take("block_indices", tensors.block_indices.shape[0]);
      [[fallthrough]];
    case KvLayout::kRagged:
      kv_rows_.take("k", tensors.k.shape[0]);
      kv_rows_.take("v", tensors.v.shape[0]);
      break;
    case KvLayout::kPadded:
      kv_slots_.take("k", tensors.k.shape[0]);
      kv_rows_.take("k", tensors.k.shape[1]);
      break;
    case KvLayout::kPaged:
      kv_rows_.take("page_indices", tensors.page_indices.shape[0]);
      pool_pages_.take("k", tensors.k.shape[0]);
      break;
  }
}

Status CapturedRuns::check(const Plan& next, std::int64_t pool_pages) const {
  if (kernel_ < 0) return ok_status();
  if (next.kernel != kernel_) {
    return make_error(
        Code::kPlanMismatch, "workload",
        "this batch wants kernel " + std::to_string(next.kernel) +
            " of the set, and a captured run of this plan launches kernel " +
            std::to_string(kernel_),
        "make the plan with limits.graph or limits.kernel, which fix one kernel for all batches");
  }
  struct Need {
    const Held& held;
    std::int64_t wanted;
  };
  const Need needs[] = {{qo_tokens_, next.qo_tokens},         {kv_rows_, next.kv_rows},
                        {kv_slots_, next.kv_slots},           {pool_pages_, pool_pages},
                        {block_entries_, next.block_entries}, {mask_bytes_, next.mask_bytes}};
  for (const Need& need : needs) {
    if (need.wanted <= need.held.count) continue;
    return make_error(Code::kPlanBound, std::string("tensors.") + need.held.tensor,
                      "needed " + std::to_string(need.wanted) + ", available " +
                          std::to_string(need.held.count) + " in the tensor of a captured run",
                      "capture with tensors for the largest batch, and make another plan for them");
  }
  return ok_status();
}

}  // namespace attnloom
