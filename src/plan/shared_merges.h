// SPDX-License-Identifier: Apache-2.0
// Which partial states make up the rows of a request that shares prefixes: those of its prefixes,
// the outermost first, then its own, each in the order of keys. Pure; deterministic; thread-safe.
#pragma once

#include <memory_resource>
#include <span>
#include <vector>

#include "base/status.h"
#include "plan/plan.h"
#include "plan/schedule.h"
#include "plan/scratch.h"
#include "plan/shared_rows.h"
#include "spec/tiles.h"

namespace attnloom {

struct SharedTables {
  explicit SharedTables(Memory* memory) : runs(memory), members(memory) {}

  std::pmr::vector<loom::StateRun> runs;
  std::pmr::vector<loom::SharedMember> members;  // as in SharedRows
};

// Gives the items of entries that share their partial rows and merges, behind those that `schedule`
// has; adds the merges to it. REQUIRES: every KV head of a tile is cut alike. Errors: PLAN_BOUND.
Result<SharedTables> merge_shared(const KernelChoice& kernel, const PlanLayout& layout,
                                  int kv_heads, const SharedRows& shared,
                                  std::span<const loom::RequestRow> rows, Schedule& schedule,
                                  std::span<loom::WorkItem> items, Memory* memory);

}  // namespace attnloom
