// SPDX-License-Identifier: Apache-2.0
// Which kernel of the set serves a batch, and the tile class of each request in it. Pure;
// thread-safe.
#pragma once

#include <vector>

#include "plan/workload.h"
#include "spec/spec.h"
#include "spec/tiles.h"

namespace attnloom {

struct Selection {
  int kernel = 0;  // index into the set
  std::vector<int>
      tile_class;  // [batch] index into the kernel's classes; 0 for a request without query tokens
};

// REQUIRES: check_workload passed; the set is not empty and each kernel has a class.
Selection select_kernel(const Spec& spec, const std::vector<KernelChoice>& kernels,
                        const Workload& workload);

}  // namespace attnloom
