// SPDX-License-Identifier: Apache-2.0
// A CTA's way through its queue of work items, the same in every family of attention kernels.
#pragma once

#include "loom/epilogue.cuh"

namespace loom {

// Of a request only what its kernel reads: 32 bytes, one sector, but for lists and masks.
template <class Config>
LOOM_DEVICE void take_item(Kept& kept, const AttentionArgs& args, const PlanHeader& plan, int lane,
                           int index) {
  const WorkItem item =
      reinterpret_cast<const WorkItem*>(args.workspace + plan.items_offset)[index];
  const uint4* row = reinterpret_cast<const uint4*>(
      reinterpret_cast<const RequestRow*>(args.workspace + plan.requests_offset) + item.request);
  constexpr int kParts = Config::kBsr || Config::kCustomMask || Config::kShares ? 3 : 2;
#pragma unroll
  for (int part = 0; part < kParts; ++part)
    reinterpret_cast<uint4*>(&kept.request)[part] = row[part];
  kept.work.item = item;
  kept.work.item.kv_head += lane;
  kept.work.item.merge += lane;
  kept.work.lane = lane;
  kept.index = index;
}

// Calls run_item(plan, variant, work, request, kept, shared) for every item of this CTA; it
// computes the item's rows, stores them through ItemRows and returns how many its class has.
template <class Config, class Variant, class RunItem>
LOOM_DEVICE void walk_queue(const AttentionArgs& args, RunItem&& run_item) {
  extern __shared__ __align__(
      1024) unsigned char shared[];  // tiles are addressed by XOR: rows must not straddle
  const PlanHeader& plan = *reinterpret_cast<const PlanHeader*>(args.workspace);
  const CtaQueue& queue =
      reinterpret_cast<const CtaQueue*>(args.workspace + kQueuesOffset)[blockIdx.x];
  const Variant variant(plan, args);
  Kept& kept = *reinterpret_cast<Kept*>(shared + Config::kSharedBytes - sizeof(Kept));
#pragma unroll 1
  for (int i = queue.begin; i < queue.end; i = kept.index + 1) {
    __syncthreads();  // the previous item's epilogue may still read shared memory
    if (threadIdx.x == 0) take_item<Config>(kept, args, plan, queue.lane, i);
    __syncthreads();
    const Work& work = kept.work;
    const RequestRow& request = kept.request;
    const int rows = run_item(plan, variant, work, request, kept, shared);
    if (work.is_alone()) continue;
    merge_if_last<Config, WholeCta<Config>>(
        plan, OutputRows<Config, Variant>{args, variant, request, work}, rows,
        reinterpret_cast<int*>(shared));
  }
}

}  // namespace loom
