// SPDX-License-Identifier: Apache-2.0
// A CTA's way through its queue of work items, the same in every family of attention kernels.
#pragma once

#include "loom/epilogue.cuh"

namespace loom {

// What a CTA knows of its item in shared memory: words that, held in registers across the KV loop,
// made the two-block class spill (255 registers) or copy its accumulators around.
struct Kept {
  int index;                 // of the item
  int full_begin, full_end;  // as in KvBounds
  int padding;
};

// Calls run_item(plan, variant, work, request, kept, shared) for every item of this CTA; it
// computes the item's rows, stores them through ItemRows and returns how many its class has.
template <class Config, class Variant, class RunItem>
LOOM_DEVICE void walk_queue(const AttentionArgs& args, RunItem&& run_item) {
  extern __shared__ __align__(
      1024) unsigned char shared[];  // tiles are addressed by XOR: rows must not straddle
  const PlanHeader& plan = *reinterpret_cast<const PlanHeader*>(args.workspace);
  const int* queue = reinterpret_cast<const int*>(args.workspace + kCtaBeginOffset) + blockIdx.x;
  const Variant variant(plan, args);
  Kept& kept = *reinterpret_cast<Kept*>(shared + Config::kSharedBytes - sizeof(Kept));
#pragma unroll 1
  for (int i = queue[0]; i < queue[1]; i = kept.index + 1) {
    __syncthreads();  // the previous item's epilogue may still read shared memory
    if (threadIdx.x == 0) kept.index = i;
    // By reference: twelve words held in registers across the KV loop made the two-block class
    // spill.
    const WorkItem& work = reinterpret_cast<const WorkItem*>(args.workspace + plan.items_offset)[i];
    const RequestRow& request =
        reinterpret_cast<const RequestRow*>(args.workspace + plan.requests_offset)[work.request];
    const int rows = run_item(plan, variant, work, request, kept, shared);
    if (work.partial_row < 0) continue;
    merge_if_last<Config>(plan, OutputRows<Config, Variant>{args, variant, request, work}, rows,
                          reinterpret_cast<int*>(shared));
  }
}

}  // namespace loom
