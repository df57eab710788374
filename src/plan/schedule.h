// SPDX-License-Identifier: Apache-2.0
// Algorithm 1 (DESIGN §7): lengths -> one queue of work items a gang of CTAs, and the map of
// states to merge. Pure; deterministic: ties are broken by (request, query tile, head of lane 0,
// chunk) and by CTA. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <span>
#include <vector>

#include "base/status.h"
#include "kernel_templates/loom/plan.cuh"
#include "plan/plan.h"
#include "plan/scratch.h"
#include "plan/select.h"
#include "plan/shared_rows.h"

namespace attnloom {

// The first `count` items of a block.
inline std::span<loom::WorkItem> items_of(std::vector<std::byte>& block, const PlanLayout& layout,
                                          int count) {
  return {reinterpret_cast<loom::WorkItem*>(block.data() + layout.items_offset),
          static_cast<std::size_t>(count)};
}

struct Schedule {
  explicit Schedule(Memory* memory) : queues(memory), merges(memory) {}

  std::pmr::vector<loom::CtaQueue> queues;   // [CTAs]
  int lanes = 1;                             // CTAs of a gang: each item stands for one a lane
  int stored_items = 0;                      // of gangs
  std::pmr::vector<loom::MergeTile> merges;  // by (request, query tile, head)
  std::int64_t partial_rows = 0;             // that these merges use
  PlanFigures figures;
};

// `rows`: of make_row_table. The items, by gang and then in queue order, become the end of `block`,
// from layout.items_offset on. Tiles that share prefixes leave their merges to shared_merges.h.
// REQUIRES: check_workload passed. Errors: PLAN_BOUND where `layout` has no room.
Result<Schedule> make_schedule(const Spec& spec, const KernelChoice& kernel, int ctas,
                               const PlanLayout& layout, const Workload& workload,
                               std::span<const loom::RequestRow> rows, const SharedRows& shared,
                               const Selection& selection, const CostModel& cost,
                               ScheduleChoice choice, std::vector<std::byte>& block,
                               Memory* memory);

}  // namespace attnloom
