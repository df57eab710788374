// SPDX-License-Identifier: Apache-2.0
#include "plan/layout.h"

#include <algorithm>
#include <limits>
#include <span>

#include "kernel_templates/loom/plan.cuh"
#include "plan/invariant.h"
#include "plan/plan.h"
#include "plan/rows.h"
#include "spec/shares.h"

namespace attnloom {
namespace {

constexpr std::int64_t kMaxInt32 = std::numeric_limits<std::int32_t>::max();

Status check_limits(const Spec& spec, const PlanLimits& limits) {
  const auto at_least = [](std::int64_t least, const char* name, std::int64_t value) {
    if (value >= least) return ok_status();
    return make_error(Code::kWorkloadInvalid, std::string("limits.") + name,
                      "wanted " + std::to_string(least) + " to " + std::to_string(kMaxInt32) +
                          " in limits." + name + ", given " + std::to_string(value),
                      "fill in the plan's limits: they are fixed when it is made");
  };
  ATTNLOOM_CHECK(at_least(0, "max_batch", limits.max_batch));
  ATTNLOOM_CHECK(at_least(0, "max_qo_tokens", limits.max_qo_tokens));
  ATTNLOOM_CHECK(at_least(1, "kv_heads", limits.kv_heads));
  ATTNLOOM_CHECK(at_least(1, "sm_count", limits.sm_count));
  ATTNLOOM_CHECK(at_least(0, "max_ctas", limits.max_ctas));
  if (limits.q_heads != std::int64_t{limits.kv_heads} * spec.group_size) {
    return make_error(Code::kWorkloadInvalid, "limits.q_heads",
                      "wanted limits.kv_heads * group_size = " +
                          std::to_string(std::int64_t{limits.kv_heads} * spec.group_size) +
                          ", given " + std::to_string(limits.q_heads),
                      "give the heads of this device's share of the model");
  }
  return ok_status();
}

Status check_bound(const char* what, std::int64_t needed) {
  if (needed <= kMaxInt32) return ok_status();
  return make_error(Code::kPlanBound, std::string("limits.") + what,
                    "needed " + std::to_string(needed) + ", available " + std::to_string(kMaxInt32),
                    "lower max_batch or max_qo_tokens");
}

std::size_t align(std::size_t offset, std::size_t to) {
  return (offset + to - 1) / to * to;
}

}  // namespace

std::int64_t cta_count(const KernelChoice& kernel, const PlanLimits& limits) {
  const std::int64_t resident = std::int64_t{limits.sm_count} * kernel.min_ctas_per_sm;
  return limits.max_ctas == 0 ? resident : std::min<std::int64_t>(resident, limits.max_ctas);
}

Status check_room(const char* what, std::int64_t needed, std::int64_t available,
                  const char* limit) {
  if (needed <= available) return ok_status();
  return make_error(Code::kPlanBound, std::string("workload.") + what,
                    "needed " + std::to_string(needed) + ", available " + std::to_string(available),
                    std::string("make the plan object with a larger ") + limit);
}

int largest_query_tile(std::span<const KernelChoice> set) {
  const std::span<const KernelChoice> kernels = warp_kernels(set);
  if (kernels.size() < set.size())
    return std::min(largest_query_tile(kernels), set.back().classes[0].q);
  int largest_single = 0;
  int largest_joint = std::numeric_limits<int>::max();
  for (const KernelChoice& kernel : kernels) {
    if (kernel.classes.size() == 1) largest_single = std::max(largest_single, kernel.classes[0].q);
    if (kernel.classes.size() > 1) largest_joint = std::min(largest_joint, kernel.classes.back().q);
  }
  return largest_single == 0 ? largest_joint : std::min(largest_single, largest_joint);
}

namespace {

// Room for sharing, by what a decode needs: a state of 16 rows of each request's own, as many rows
// again in those of its prefixes, and a tile that is hardly filled for each of four levels.
// Whatever a batch has beyond that is walked by each request itself.
constexpr int kLevels = 4;
constexpr int kPartialRowsOfRequest = 32;

ShareRoom share_room(const Spec& spec, std::span<const KernelChoice> set,
                     const PlanLimits& limits) {
  const std::span<const KernelChoice> kernels = warp_kernels(set);
  ShareRoom room;
  if (!limits.share_prefixes || limits.batch_invariant || !may_share_prefixes(spec)) return room;
  room.tile_rows = std::min(largest_query_tile(kernels), kMostPrefixRows);
  if (room.tile_rows < 2) return {};
  const KernelChoice& last = kernels.back();  // the joint one, where there is one
  room.least_tile_rows =
      kernels.size() == 1 || last.classes.size() > 1 ? last.classes.front().q : room.tile_rows;
  room.entries = limits.max_batch;
  room.members = std::int64_t{kLevels} * limits.max_batch;
  room.tokens = std::min(kLevels * limits.max_qo_tokens, room.members * room.tile_rows / 2);
  room.partial_rows = std::int64_t{kPartialRowsOfRequest} * limits.max_batch +
                      std::int64_t{kLevels} * room.tile_rows;
  return room;
}

// Fills in the table sizes. The bounds, for N output tiles of l_i KV tokens each, C CTAs, and a
// chunk length L >= sum(l_i) / C:
// - A tile is split when l_i > L, into ceil(l_i / L) < l_i / L + 1 < 2 * l_i / L chunks. Summed
// over split tiles
//   that is below 2 * sum(l_i) / L <= 2 * C: at most 2 * C chunks have a partial state.
// - Splitting adds ceil(l_i / L) - 1 < l_i / L items to a tile, C in all: at most N + C items.
// - Fewer than C tiles can be longer than sum(l_i) / C: at most C merges.
// - An entry of x packed rows makes ceil(x / T) <= (x + T - 1) / T tiles, T being the class of
//   entries that no class covers (the others make one tile): N <= kv_heads * floor((sum(x) + B * (T
//   - 1)) / T) with B entries.
// Rounding L up, by each class's own KV tile, only makes chunks fewer.
Result<PlanLayout> table_sizes(const Spec& spec, std::span<const KernelChoice> kernels,
                               const PlanLimits& limits) {
  // The other kernels of the set are never launched.
  if (limits.batch_invariant && kernels.size() > 1)
    return table_sizes(spec, kernels.subspan(invariant_kernel(kernels), 1), limits);
  std::int64_t max_ctas = 0;
  std::int64_t max_partial_rows = 0;
  for (const KernelChoice& kernel : kernels) {
    const std::int64_t ctas = cta_count(kernel, limits);
    max_ctas = std::max(max_ctas, ctas);
    max_partial_rows = std::max(max_partial_rows, 2 * ctas * kernel.classes.back().q);
  }
  const std::int64_t tile_rows = largest_query_tile(kernels);
  const std::int64_t entries =
      std::min(most_rows(spec, limits.max_batch, limits.max_qo_tokens), limits.max_qo_tokens);
  const std::int64_t packed_rows = limits.max_qo_tokens * spec.group_size;
  const std::int64_t query_tiles = (packed_rows + entries * (tile_rows - 1)) / tile_rows;
  ATTNLOOM_CHECK(check_bound("query tiles", query_tiles));
  // A prefix tile is one more tile, and each request that shares has a merge and unsplit states.
  // Prefix tiles are cut by a chunk of their own, which adds C more items, and states, at most.
  const ShareRoom share = share_room(spec, kernels, limits);
  std::int64_t max_items =
      (query_tiles + share.entries) * limits.kv_heads + (share.tile_rows > 0 ? 2 : 1) * max_ctas;
  std::int64_t max_merges =
      max_ctas + (share.tile_rows > 0 ? std::int64_t{limits.max_batch} * limits.kv_heads : 0);
  max_partial_rows += share.partial_rows * limits.kv_heads + max_ctas * share.tile_rows;
  if (limits.batch_invariant) {
    const InvariantBounds bounds = invariant_bounds(spec, kernels[0], limits.kv_heads,
                                                    limits.max_qo_tokens, query_tiles, entries);
    max_items = bounds.items;
    max_merges = bounds.merges;
    max_partial_rows = bounds.partial_rows;
  }
  ATTNLOOM_CHECK(check_bound("work items", max_items));
  ATTNLOOM_CHECK(check_bound("merges", max_merges));
  ATTNLOOM_CHECK(check_bound("partial rows", max_partial_rows));

  PlanLayout layout;
  layout.share = share;
  layout.max_ctas = static_cast<int>(max_ctas);
  layout.max_items = static_cast<int>(max_items);
  layout.max_merges = static_cast<int>(max_merges);
  layout.max_partial_rows = max_partial_rows;
  return layout;
}

// Each from a border of 16 bytes.
std::size_t shared_table_bytes(const ShareRoom& room, int max_batch) {
  return 2 * 16 + static_cast<std::size_t>(room.members + max_batch) * sizeof(loom::StateRun) +
         static_cast<std::size_t>(room.tokens) * sizeof(loom::SharedToken) +
         static_cast<std::size_t>(room.members) * sizeof(loom::SharedMember);
}

}  // namespace

Result<PlanLayout> plan_layout(const Spec& spec, const std::vector<KernelChoice>& kernels,
                               const PlanLimits& limits) {
  if (spec.kernel != KernelKind::kAttention) {
    return make_error(Code::kWorkloadInvalid, "$.kernel",
                      "\"" + std::string(json_name(spec.kernel)) + "\" takes no plan",
                      "plan an attention kernel");
  }
  ATTNLOOM_CHECK(check_limits(spec, limits));
  ATTNLOOM_CHECK(check_bound("max_qo_tokens", limits.max_qo_tokens));
  ATTNLOOM_TRY(PlanLayout layout, table_sizes(spec, kernels, limits));
  layout.max_rows = most_rows(spec, limits.max_batch, limits.max_qo_tokens) + layout.share.entries;
  std::size_t end = sizeof(loom::PlanHeader);
  const auto next = [&end](std::size_t bytes, std::size_t alignment) {
    const std::size_t offset = align(end, alignment);
    end = offset + bytes;
    return offset;
  };
  layout.queues_offset =
      next(static_cast<std::size_t>(layout.max_ctas) * sizeof(loom::CtaQueue), 16);
  layout.requests_offset =
      next(static_cast<std::size_t>(layout.max_rows) * sizeof(loom::RequestRow), 16);
  layout.merges_offset =
      next(static_cast<std::size_t>(layout.max_merges) * sizeof(loom::MergeTile), 16);
  layout.counters_offset = next(static_cast<std::size_t>(layout.max_merges) * sizeof(int), 16);
  layout.items_offset =
      next(static_cast<std::size_t>(layout.max_items) * sizeof(loom::WorkItem), 16);
  if (layout.share.tile_rows > 0) next(shared_table_bytes(layout.share, limits.max_batch), 16);
  layout.plan_bytes = next(0, 16);
  ATTNLOOM_CHECK(check_bound("plan bytes", static_cast<std::int64_t>(layout.plan_bytes)));
  const std::size_t row_bytes = static_cast<std::size_t>(spec.head_dim.vo) * sizeof(float);
  layout.partial_o_offset =
      next(static_cast<std::size_t>(layout.max_partial_rows) * row_bytes, 256);
  layout.partial_lse_offset =
      next(static_cast<std::size_t>(layout.max_partial_rows) * sizeof(float), 256);
  layout.workspace_bytes = next(0, 256);
  return layout;
}

}  // namespace attnloom
