// SPDX-License-Identifier: Apache-2.0
// Plan: the work queues and merge map of one batch as the bytes a kernel reads (loom/plan.cuh).
// Made on the host, pure and deterministic: the same inputs give the same bytes. Values; not shared
// between threads while being made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "plan/cost_model.h"
#include "plan/scratch.h"
#include "plan/shared_rows.h"
#include "plan/workload.h"
#include "spec/spec.h"
#include "spec/tiles.h"

namespace attnloom {

enum class ScheduleChoice {
  kShipped,     // Algorithm 1 or the contiguous cut, whichever the cost model prefers
  kAlgorithm1,  // as the paper has it
};

// Upper bounds fixed when a plan object is made; everything about the workspace follows from them.
struct PlanLimits {
  int max_batch = 0;
  std::int64_t max_qo_tokens = 0;  // over the whole batch
  int q_heads = 0;
  int kv_heads = 0;
  int sm_count = 0;
  int max_ctas = 0;              // of a launch; 0: all that are resident at once on sm_count SMs
  bool batch_invariant = false;  // plan/invariant.h
  bool share_prefixes = false;   // keep room for shared prefixes (shared_rows.h), and use it
  ScheduleChoice schedule = ScheduleChoice::kShipped;
};

// Fixed byte offsets in the workspace (but for what stands behind the items), and how much of each
// table fits.
struct PlanLayout {
  int max_ctas = 0;
  int max_items = 0;
  int max_merges = 0;
  std::int64_t max_rows = 0;  // entries of the request table
  std::int64_t max_partial_rows = 0;
  ShareRoom share;
  std::size_t queues_offset = 0;
  std::size_t requests_offset = 0;
  std::size_t merges_offset = 0;
  std::size_t counters_offset = 0;
  std::size_t items_offset = 0;
  std::size_t plan_bytes = 0;  // the bound of what is copied
  std::size_t partial_o_offset = 0;
  std::size_t partial_lse_offset = 0;
  std::size_t workspace_bytes = 0;
};

// REQUIRES: kernels = kernel_set(spec). Errors: WORKLOAD_INVALID for limits that make no sense,
// PLAN_BOUND past int32.
Result<PlanLayout> plan_layout(const Spec& spec, const std::vector<KernelChoice>& kernels,
                               const PlanLimits& limits);

struct PlanFigures {
  double makespan = 0;   // cost units of the longest queue
  double ideal = 0;      // total cost / CTAs
  double reachable = 0;  // with a device's profile: what no cut can be much better than
  int items = 0;
  int split_tiles = 0;
  int prefix_tiles = 0;           // entries that hold rows of several requests
  bool contiguous = false;        // cut by plan/contiguous.h, else by Algorithm 1
  std::int64_t chunk_tokens = 0;  // L_kv before rounding to a class's KV tile
};

struct Plan {
  int kernel = 0;                  // index into the kernel set
  int grid = 0;                    // CTAs to launch
  std::int64_t qo_tokens = 0;      // rows that q and o must have
  std::int64_t kv_rows = 0;        // rows that k and v must have; padded: each slot of them; paged:
                                   // length of the page indices
  std::int64_t kv_slots = 0;       // padded: slots that k and v must have
  std::int64_t block_entries = 0;  // bsr: length of the block indices
  std::int64_t mask_bytes = 0;     // of the packed custom masks
  std::vector<std::byte> block;    // header and tables, to be copied to the start of the workspace
  PlanFigures figures;
};

// Algorithm 1 (DESIGN §7). `generation` is stored in the header. `storage`: a block no longer used,
// whose memory the new one takes over; pages fresh from the system were half the time of a plan of
// 4096 items. `scratch`: where all else lies meanwhile. With both, a batch no larger than one
// before it and cut like that one is planned without a call of operator new. Errors: those of
// check_workload; PLAN_BOUND naming needed and available.
Result<Plan> make_plan(const Spec& spec, const std::vector<KernelChoice>& kernels,
                       const PlanLimits& limits, const Workload& workload, std::uint64_t generation,
                       const CostModel& cost = {}, std::vector<std::byte> storage = {},
                       PlanScratch* scratch = nullptr);

// The plan as people read it: queues, merge map, figures (`attnloom plan --json`).
Json plan_to_json(const Spec& spec, const std::vector<KernelChoice>& kernels, const Plan& plan);

}  // namespace attnloom
