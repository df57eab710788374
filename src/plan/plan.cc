// SPDX-License-Identifier: Apache-2.0
#include "plan/plan.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>

#include "plan/layout.h"
#include "plan/rows.h"
#include "plan/schedule.h"
#include "plan/select.h"
#include "plan/shared_merges.h"
#include "plan/shared_rows.h"

namespace attnloom {
namespace {

// check_room, naming the request that is the first without it.
Status check_requests(std::int64_t needed, std::int64_t available, const char* limit,
                      std::int64_t first_without) {
  Status status = check_room("qo_indptr", needed, available, limit);
  if (!status.ok())
    status.cause += "; request " + std::to_string(first_without) + " is the first without room";
  return status;
}

Status check_batch(const PlanLimits& limits, const Workload& workload) {
  const auto over =
      std::upper_bound(workload.qo_indptr.begin(), workload.qo_indptr.end(), limits.max_qo_tokens);
  ATTNLOOM_CHECK(check_requests(workload.batch(), limits.max_batch, "max_batch", limits.max_batch));
  return check_requests(workload.qo_indptr.back(), limits.max_qo_tokens, "max_qo_tokens",
                        over - workload.qo_indptr.begin() - 1);
}

Status check_limits(const Spec& spec, const PlanLimits& limits, const Workload& workload,
                    const CostModel& cost) {
  ATTNLOOM_CHECK(check_batch(limits, workload));
  ATTNLOOM_CHECK(check_room("heads", workload.kv_heads, limits.kv_heads, "kv_heads"));
  std::int64_t scalars = 0;
  for (const Param& param : spec.variant.params) scalars += is_pointer(param.type) ? 0 : 1;
  if (scalars > loom::kMaxScalars) {
    return make_error(
        Code::kPlanBound, "$.variant.params",
        "needed " + std::to_string(scalars) + ", available " + std::to_string(loom::kMaxScalars),
        "pass more values through a pointer param");
  }
  for (const double factor : {cost.alpha, cost.beta}) {
    if (std::isfinite(factor) && factor >= 0) continue;
    return make_error(Code::kWorkloadInvalid, "cost",
                      "wanted finite factors of 0 or more, given " + std::to_string(factor),
                      "alpha weighs a tile's rows, beta its KV tokens");
  }
  return ok_status();
}

std::uint32_t scalar_bits(ParamType type, double value) {
  switch (type) {
    case ParamType::kI32:
      return static_cast<std::uint32_t>(static_cast<std::int32_t>(value));
    case ParamType::kU32:
      return static_cast<std::uint32_t>(value);
    default:
      return std::bit_cast<std::uint32_t>(static_cast<float>(value));
  }
}

void fill_scalars(const Spec& spec, const Workload& workload, loom::PlanHeader& header) {
  int next = 0;
  for (const Param& param : spec.variant.params) {
    if (is_pointer(param.type)) continue;
    for (const ScalarParam& scalar : workload.scalars) {
      if (scalar.name == param.name) header.scalars[next] = scalar_bits(param.type, scalar.value);
    }
    ++next;
  }
}

loom::PlanHeader make_header(const Spec& spec, const Workload& workload, const PlanLayout& layout,
                             const Schedule& schedule, std::size_t rows, std::uint64_t generation) {
  loom::PlanHeader header{};
  header.magic = loom::kPlanMagic;
  header.version = loom::kPlanVersion;
  header.generation = generation;
  header.cta_count = static_cast<int>(schedule.queues.size());
  header.item_count = schedule.stored_items;
  header.lanes = schedule.lanes;
  header.request_count = static_cast<int>(rows);
  header.merge_count = static_cast<int>(schedule.merges.size());
  header.q_heads = workload.q_heads;
  header.kv_heads = workload.kv_heads;
  header.scale = workload.scale.value_or(
      static_cast<float>(1.0 / std::sqrt(static_cast<double>(spec.head_dim.qk))));
  const std::optional<int>& fixed_window = spec.variant.mask.window_left;
  header.window_left = fixed_window ? *fixed_window : workload.window_left.value_or(-1);
  header.queues_offset = static_cast<unsigned>(layout.queues_offset);
  header.requests_offset = static_cast<unsigned>(layout.requests_offset);
  header.merges_offset = static_cast<unsigned>(layout.merges_offset);
  header.counters_offset = static_cast<unsigned>(layout.counters_offset);
  header.items_offset = static_cast<unsigned>(layout.items_offset);
  header.partial_o_offset = layout.partial_o_offset;
  header.partial_lse_offset = layout.partial_lse_offset;
  fill_scalars(spec, workload, header);
  return header;
}

// What the tensors of a run must hold for this plan.
void set_extents(const Spec& spec, const Workload& workload, const RowTable& table, Plan& plan) {
  plan.qo_tokens = workload.qo_indptr.back();
  plan.kv_rows = workload.kv_indptr.back();
  plan.mask_bytes = table.mask_bytes;
  if (spec.layout.kv == KvLayout::kBsr) plan.block_entries = workload.block_indptr.back();
  if (spec.layout.kv != KvLayout::kPadded) return;
  plan.kv_slots = workload.batch();
  plan.kv_rows = workload.kv_capacity;
  for (const loom::RequestRow& row : table.rows)
    plan.kv_rows = std::max(plan.kv_rows, std::int64_t{row.kv_begin} + row.kv_len);
}

template <class T>
void write_table(std::vector<std::byte>& block, std::size_t offset,
                 const std::pmr::vector<T>& rows) {
  if (!rows.empty()) std::memcpy(block.data() + offset, rows.data(), rows.size() * sizeof(T));
}

// Behind the items; their places go into the header.
template <class T>
unsigned append_table(std::vector<std::byte>& block, const std::pmr::vector<T>& rows) {
  const std::size_t offset = (block.size() + 15) / 16 * 16;
  block.resize(offset + rows.size() * sizeof(T));
  write_table(block, offset, rows);
  return static_cast<unsigned>(offset);
}

// make_plan with all that it needs meanwhile in `memory`.
Result<Plan> plan_in(Memory* memory, const Spec& spec, const std::vector<KernelChoice>& kernels,
                     const PlanLimits& limits, const Workload& workload, std::uint64_t generation,
                     const CostModel& cost, std::vector<std::byte> storage) {
  ATTNLOOM_TRY(const PlanLayout layout, plan_layout(spec, kernels, limits));
  ATTNLOOM_CHECK(check_workload(spec, workload, memory));
  ATTNLOOM_CHECK(check_limits(spec, limits, workload, cost));
  RowTable table = make_row_table(spec, workload, memory);
  const int entries = static_cast<int>(table.rows.size());
  const SharedRows shared = share_prefixes(spec, workload, layout.share, table.rows, memory);
  const Selection selection =
      select_kernel(spec, kernels, table.rows, limits.batch_invariant, memory);
  const KernelChoice& kernel = kernels[selection.kernel];
  const int ctas = static_cast<int>(cta_count(kernel, limits));
  Plan plan;
  plan.block = std::move(storage);
  ATTNLOOM_TRY(Schedule schedule,
               make_schedule(spec, kernel, ctas, layout, workload, table.rows, shared, selection,
                             cost, limits.schedule, plan.block, memory));
  SharedTables lists(memory);
  if (!shared.empty()) {
    ATTNLOOM_TRY(lists,
                 merge_shared(kernel, layout, workload.kv_heads, shared, table.rows, schedule,
                              items_of(plan.block, layout, schedule.stored_items), memory));
  }
  plan.kernel = selection.kernel;
  plan.grid = ctas;
  set_extents(spec, workload, table, plan);
  plan.figures = schedule.figures;
  plan.figures.prefix_tiles = static_cast<int>(table.rows.size()) - entries;
  std::fill_n(plan.block.begin(), layout.items_offset, std::byte{0});
  loom::PlanHeader header =
      make_header(spec, workload, layout, schedule, table.rows.size(), generation);
  header.state_runs_offset = append_table(plan.block, lists.runs);
  header.shared_tokens_offset = append_table(plan.block, shared.tokens);
  header.shared_members_offset = append_table(plan.block, lists.members);
  std::memcpy(plan.block.data(), &header, sizeof(header));
  write_table(plan.block, layout.queues_offset, schedule.queues);
  write_table(plan.block, layout.requests_offset, table.rows);
  write_table(plan.block, layout.merges_offset, schedule.merges);
  return plan;
}

}  // namespace

Result<Plan> make_plan(const Spec& spec, const std::vector<KernelChoice>& kernels,
                       const PlanLimits& limits, const Workload& workload, std::uint64_t generation,
                       const CostModel& cost, std::vector<std::byte> storage,
                       PlanScratch* scratch) {
  PlanScratch own;
  PlanScratch& used = scratch ? *scratch : own;
  Result<Plan> plan =
      plan_in(&used, spec, kernels, limits, workload, generation, cost, std::move(storage));
  if (scratch) scratch->release();
  return plan;
}

}  // namespace attnloom
