// SPDX-License-Identifier: Apache-2.0
// An item of the queue as one CTA has it: its gang's, with this CTA's lane added.
#pragma once

#include "loom/ops.cuh"

namespace loom {

struct Work {
  WorkItem item;
  int lane;  // of the CTA within its gang

  LOOM_DEVICE int kv_head() const { return item.kv_head; }
  LOOM_DEVICE bool is_alone() const { return item.partial_row < 0; }
  // First row of the item's partial state. `tile_rows`: of the item's class.
  LOOM_DEVICE int partial_row(int tile_rows) const { return item.partial_row + lane * tile_rows; }
  LOOM_DEVICE int merge() const { return item.merge; }
};

// What a CTA knows of its item, in shared memory behind the tiles: words that, held in registers
// across the KV loop, made the two-block class spill (255 registers) or copy its accumulators
// around.
struct Kept {
  Work work;
  RequestRow request;
  int index;                 // of the item
  int full_begin, full_end;  // as in KvBounds
};

// The threads that share a piece of work: here all of the CTA.
template <class Config>
struct WholeCta {
  static constexpr int kThreads = Config::kThreads;
  LOOM_DEVICE static int thread() { return static_cast<int>(threadIdx.x); }
  LOOM_DEVICE static int thread_now() { return thread_index_now(); }
  LOOM_DEVICE static int warp() { return static_cast<int>(threadIdx.x >> 5); }
  LOOM_DEVICE static void sync() { __syncthreads(); }
};

}  // namespace loom
