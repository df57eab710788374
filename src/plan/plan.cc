// SPDX-License-Identifier: Apache-2.0
#include "plan/plan.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "plan/layout.h"
#include "plan/rows.h"
#include "plan/schedule.h"
#include "plan/select.h"

namespace attnloom {
namespace {

Status check_limits(const Spec& spec, const PlanLimits& limits, const Workload& workload,
                    const CostModel& cost) {
  ATTNLOOM_CHECK(check_room("qo_indptr", workload.batch(), limits.max_batch, "max_batch"));
  ATTNLOOM_CHECK(
      check_room("qo_indptr", workload.qo_indptr.back(), limits.max_qo_tokens, "max_qo_tokens"));
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
void write_table(std::vector<std::byte>& block, std::size_t offset, const std::vector<T>& rows) {
  if (!rows.empty()) std::memcpy(block.data() + offset, rows.data(), rows.size() * sizeof(T));
}

}  // namespace

Result<Plan> make_plan(const Spec& spec, const std::vector<KernelChoice>& kernels,
                       const PlanLimits& limits, const Workload& workload, std::uint64_t generation,
                       const CostModel& cost, std::vector<std::byte> storage) {
  ATTNLOOM_TRY(const PlanLayout layout, plan_layout(spec, kernels, limits));
  ATTNLOOM_CHECK(check_workload(spec, workload));
  ATTNLOOM_CHECK(check_limits(spec, limits, workload, cost));
  const RowTable table = make_row_table(spec, workload);
  const Selection selection = select_kernel(spec, kernels, table.rows, limits.batch_invariant);
  const KernelChoice& kernel = kernels[selection.kernel];
  const int ctas = static_cast<int>(cta_count(kernel, limits));
  Plan plan;
  plan.block = std::move(storage);
  ATTNLOOM_TRY(const Schedule schedule,
               make_schedule(spec, kernel, ctas, layout, workload, table.rows, selection, cost,
                             limits.schedule, plan.block));
  plan.kernel = selection.kernel;
  plan.grid = ctas;
  set_extents(spec, workload, table, plan);
  plan.figures = schedule.figures;
  std::fill_n(plan.block.begin(), layout.items_offset, std::byte{0});
  const loom::PlanHeader header =
      make_header(spec, workload, layout, schedule, table.rows.size(), generation);
  std::memcpy(plan.block.data(), &header, sizeof(header));
  write_table(plan.block, layout.queues_offset, schedule.queues);
  write_table(plan.block, layout.requests_offset, table.rows);
  write_table(plan.block, layout.merges_offset, schedule.merges);
  return plan;
}

}  // namespace attnloom
