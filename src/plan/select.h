// SPDX-License-Identifier: Apache-2.0
// Which kernel of the set serves a batch, and the tile class of each of its entries (rows.h). Pure;
// thread-safe.
#pragma once

#include <memory_resource>
#include <span>
#include <vector>

#include "plan/plan.h"
#include "plan/rows.h"
#include "plan/scratch.h"
#include "spec/spec.h"
#include "spec/tiles.h"

namespace attnloom {

struct Selection {
  int kernel = 0;  // index into the set
  std::pmr::vector<int>
      tile_class;  // [rows] index into the kernel's classes; 0 for an entry without query tokens
  bool batch_invariant = false;  // chunks are cut by invariant_chunk, too
};

// REQUIRES: the set is not empty and each kernel has a class.
Selection select_kernel(const Spec& spec, std::span<const KernelChoice> set,
                        std::span<const loom::RequestRow> rows, bool batch_invariant = false,
                        Memory* memory = heap());

// The one kernel for all batches within the limits, for launches that are captured into a graph and
// so cannot switch: where no batch has more tokens than requests that of the smallest query tile
// with room for a token's heads, else the joint one, else that of invariant_kernel.
int fixed_kernel(const Spec& spec, std::span<const KernelChoice> set, const PlanLimits& limits);

}  // namespace attnloom
