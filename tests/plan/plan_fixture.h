// SPDX-License-Identifier: Apache-2.0
// Batches and kernel sets for planner tests, and a plan block read back into tables. Values.
#pragma once

#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

#include "kernel_templates/loom/plan.cuh"
#include "plan/plan.h"
#include "plan/rows.h"

namespace attnloom::test {

// Owns the arrays that a Workload views.
struct Batch {
  int kv_heads = 1;
  int group_size = 1;
  std::vector<std::int32_t> qo_indptr{0};
  std::vector<std::int32_t> kv_indptr{0};
  std::vector<std::int32_t> last_page_len;
  std::vector<std::int32_t> page_indices;
  std::vector<std::int32_t> kv_start;
  std::vector<std::int32_t> block_indptr;
  std::vector<std::int32_t> block_indices;

  Batch& add(int qo_len, int kv_len) {
    qo_indptr.push_back(qo_indptr.back() + qo_len);
    kv_indptr.push_back(kv_indptr.back() + kv_len);
    return *this;
  }

  Batch& add_paged(int qo_len, int kv_len, int page_size) {
    const int pages = (kv_len + page_size - 1) / page_size;
    last_page_len.push_back(pages == 0 ? 0 : kv_len - (pages - 1) * page_size);
    return add(qo_len, pages);
  }

  // `lists`: the columns of each row of blocks.
  Batch& add_blocks(int qo_len, int kv_len, const std::vector<std::vector<int>>& lists) {
    if (block_indptr.empty()) block_indptr = {0};
    for (const std::vector<int>& list : lists) {
      block_indices.insert(block_indices.end(), list.begin(), list.end());
      block_indptr.push_back(static_cast<std::int32_t>(block_indices.size()));
    }
    return add(qo_len, kv_len);
  }

  Workload view() const {
    Workload workload;
    workload.q_heads = kv_heads * group_size;
    workload.kv_heads = kv_heads;
    workload.qo_indptr = qo_indptr;
    workload.kv_indptr = kv_indptr;
    workload.last_page_len = last_page_len;
    workload.page_indices = page_indices;
    workload.kv_start = kv_start;
    workload.block_indptr = block_indptr;
    workload.block_indices = block_indices;
    return workload;
  }

  // Just large enough for this batch.
  PlanLimits limits(int sm_count) const {
    PlanLimits limits;
    limits.max_batch = std::max<int>(1, static_cast<int>(qo_indptr.size()) - 1);
    limits.max_qo_tokens = std::max(1, qo_indptr.back());
    limits.q_heads = kv_heads * group_size;
    limits.kv_heads = kv_heads;
    limits.sm_count = sm_count;
    return limits;
  }
};

inline Spec ragged_spec(int group_size = 1) {
  Spec spec;
  spec.head_dim = {64, 64};
  spec.group_size = group_size;
  return spec;
}

inline Spec paged_spec(int page_size, int group_size = 1) {
  Spec spec = ragged_spec(group_size);
  spec.layout.kv = KvLayout::kPaged;
  spec.layout.page_size = page_size;
  return spec;
}

inline Spec bsr_spec(int rows, int columns, int group_size = 1) {
  Spec spec = ragged_spec(group_size);
  spec.layout.kv = KvLayout::kBsr;
  spec.layout.block_rows = rows;
  spec.layout.block_columns = columns;
  return spec;
}

inline KernelChoice kernel(std::vector<TileClass> classes, int ctas_per_sm = 1) {
  return {.family = "attention_mma",
          .classes = std::move(classes),
          .threads = 128,
          .min_ctas_per_sm = ctas_per_sm};
}

// The set of a literal tile.
inline std::vector<KernelChoice> one_kernel(int q, int kv) {
  return {kernel({{q, kv, 2}})};
}

// The set of "auto": its joint kernel lacks class 64.
inline std::vector<KernelChoice> auto_kernels() {
  return {kernel({{16, 128, 2}}, 2), kernel({{64, 64, 2}}, 2), kernel({{128, 64, 2}}),
          kernel({{16, 128, 2}, {128, 64, 2}})};
}

// The items are expanded: each CTA's own, with its lane added, by CTA and in queue order.
struct Tables {
  loom::PlanHeader header;
  std::vector<loom::CtaQueue> queues;
  std::vector<int> cta_begin;  // [CTAs + 1] into the items
  std::vector<loom::RequestRow> requests;
  std::vector<loom::MergeTile> merges;
  std::vector<int> counters;
  std::vector<loom::WorkItem> items;
};

template <class T>
std::vector<T> read_table(const Plan& plan, std::size_t offset, int count) {
  std::vector<T> rows(static_cast<std::size_t>(count));
  REQUIRE(offset % 16 == 0);
  REQUIRE(offset + rows.size() * sizeof(T) <= plan.block.size());
  if (count > 0) std::memcpy(rows.data(), plan.block.data() + offset, rows.size() * sizeof(T));
  return rows;
}

// A kernel adds lane * tile rows to partial_row: property_test compares that with the merges.
inline loom::WorkItem item_of_lane(loom::WorkItem item, int lane,
                                   const std::vector<loom::MergeTile>& merges) {
  item.kv_head += lane;
  if (item.partial_row < 0) return item;
  item.partial_row += merges.at(item.merge + lane).partial_row - merges.at(item.merge).partial_row;
  item.merge += lane;
  return item;
}

inline Tables read_plan(const Plan& plan) {
  Tables tables;
  tables.header = read_table<loom::PlanHeader>(plan, 0, 1)[0];
  const loom::PlanHeader& header = tables.header;
  tables.queues = read_table<loom::CtaQueue>(plan, header.queues_offset, header.cta_count);
  tables.requests =
      read_table<loom::RequestRow>(plan, header.requests_offset, header.request_count);
  tables.merges = read_table<loom::MergeTile>(plan, header.merges_offset, header.merge_count);
  tables.counters = read_table<int>(plan, header.counters_offset, header.merge_count);
  const auto stored = read_table<loom::WorkItem>(plan, header.items_offset, header.item_count);
  tables.cta_begin.push_back(0);
  for (const loom::CtaQueue& queue : tables.queues) {
    for (int i = queue.begin; i < queue.end; ++i) {
      tables.items.push_back(item_of_lane(stored[i], queue.lane, tables.merges));
    }
    tables.cta_begin.push_back(static_cast<int>(tables.items.size()));
  }
  return tables;
}

inline Plan plan_or_fail(const Spec& spec, const std::vector<KernelChoice>& kernels,
                         const Batch& batch, int sm_count) {
  const Result<Plan> plan = make_plan(spec, kernels, batch.limits(sm_count), batch.view(), 1);
  INFO(plan.status().to_string());
  REQUIRE(plan.ok());
  return plan.value();
}

}  // namespace attnloom::test

namespace loom {
inline bool operator==(const WorkItem& a, const WorkItem& b) {
  return std::memcmp(&a, &b, sizeof(a)) == 0;
}
inline bool operator==(const MergeTile& a, const MergeTile& b) {
  return std::memcmp(&a, &b, sizeof(a)) == 0;
}
inline bool operator==(const RequestRow& a, const RequestRow& b) {
  return std::memcmp(&a, &b, sizeof(a)) == 0;
}
}  // namespace loom
