// SPDX-License-Identifier: Apache-2.0
// Planner faults that others reported, each with the smallest input that shows it.
#include <catch2/catch.hpp>

#include "plan_fixture.h"

namespace attnloom {
namespace {

using loom::WorkItem;
using test::Batch;
using test::plan_or_fail;
using test::read_plan;
using test::Tables;

TEST_CASE("B21: no page size makes an empty chunk") {
  for (const int page_size : {1, 128, 129, 256, 512}) {
    Batch batch;
    batch.add_paged(1, 300, page_size);
    const Plan plan =
        plan_or_fail(test::paged_spec(page_size), test::one_kernel(16, 64), batch, 132);
    int tokens = 0;
    for (const WorkItem& item : read_plan(plan).items) {
      CHECK(item.kv_end > item.kv_begin);
      tokens += item.kv_end - item.kv_begin;
    }
    CHECK(tokens == 300);
  }
}

TEST_CASE("B37: page indices are compared with the pool, used entries only") {
  const Spec spec = test::paged_spec(16);
  Batch batch;
  batch.add_paged(1, 20, 16);
  const auto check = [&](std::vector<std::int32_t> indices) {
    batch.page_indices = std::move(indices);
    Workload workload = batch.view();
    workload.pool_pages = 3;
    return make_plan(spec, test::one_kernel(16, 32), batch.limits(1), workload, 1).status();
  };
  CHECK(check({0, 2, -1}).ok());
  const Status over = check({0, 3});
  CHECK(code_name(over.code) == "WORKLOAD_INVALID");
  CHECK(over.path == "workload.page_indices[1]");
  CHECK_THAT(over.cause, Catch::Contains("request 0, entry 1") && Catch::Contains("given 3"));
  CHECK_THAT(check({0, -1}).cause, Catch::Contains("given -1"));
  CHECK_THAT(check({0}).cause, Catch::Contains("wanted at least 2 entries, given 1"));
}

TEST_CASE("B39: requests without keys are counted as the items that they make") {
  Batch batch;
  batch.add(1, 0).add(1, 0).add(1, 0).add(1, 512);
  const Plan plan = plan_or_fail(test::ragged_spec(), test::one_kernel(16, 128), batch, 4);
  CHECK(plan.figures.items == 3 + 4);
  CHECK(plan_layout(test::ragged_spec(), test::one_kernel(16, 128), batch.limits(4))->max_items ==
        4 + 4);
}

TEST_CASE("B41: chunks are whole KV tiles, and the last one ends at the length") {
  Batch batch;
  batch.add(1, 64);
  const Plan plan = plan_or_fail(test::ragged_spec(), test::one_kernel(16, 128), batch, 2);
  CHECK(plan.figures.chunk_tokens == 32);
  CHECK(read_plan(plan).items == std::vector<WorkItem>{{0, 0, 0, 0, 64, 0, -1, -1}});
}

TEST_CASE("B43: capacities follow from the limits") {
  Batch batch;
  batch.kv_heads = 48;
  for (int row = 0; row < 768; ++row) batch.add(1, 16);
  const Plan plan = plan_or_fail(test::ragged_spec(), test::one_kernel(16, 32), batch, 132);
  CHECK(plan.figures.items == 36864);
}

TEST_CASE("B51: a CTA without work has an empty queue, and nothing lies behind the items") {
  Batch batch;
  batch.kv_heads = 1;
  batch.group_size = 8;
  batch.add(1, 10).add(1, 10);
  const Plan plan = plan_or_fail(test::ragged_spec(8), test::one_kernel(16, 32), batch, 132);
  const Tables tables = read_plan(plan);
  CHECK(plan.grid == 132);
  CHECK(tables.header.item_count == 2);
  for (int cta = 2; cta <= 132; ++cta) CHECK(tables.cta_begin[cta] == 2);
  CHECK(plan.block.size() == tables.header.items_offset + 2 * sizeof(WorkItem));
}

TEST_CASE("B57: 65536 decode requests fit one launch") {
  Batch batch;
  for (int r = 0; r < 65536; ++r) batch.add(1, 1);
  const Plan plan = plan_or_fail(test::ragged_spec(), test::one_kernel(16, 32), batch, 132);
  CHECK(plan.grid == 132);
  CHECK(plan.figures.items == 65536);
  std::vector<char> seen(65536, 0);
  for (const WorkItem& item : read_plan(plan).items) ++seen[item.request];
  CHECK(std::count(seen.begin(), seen.end(), 1) == 65536);
}

TEST_CASE("64-bit totals: shares of long contexts do not wrap") {
  // 1024 requests of 16 Mi tokens on 8 heads are 2^37 tokens; each CTA's share is 2^37 / 132.
  Batch batch;
  batch.kv_heads = 8;
  for (int r = 0; r < 1024; ++r) batch.add_paged(1, 1 << 24, 1 << 16);
  const Plan plan = plan_or_fail(test::paged_spec(1 << 16), test::one_kernel(16, 128), batch, 132);
  CHECK(plan.figures.chunk_tokens == 1041204193);  // ceil(137438953472 / 132)
  CHECK(plan.figures.items == 8192);
}

TEST_CASE("rows of a page table are ranges of its indices") {
  // Two requests over pages {3, 5, 1} and {2, 4} of one token each: row pointers {0, 3, 5}.
  Batch batch;
  batch.add_paged(1, 3, 1).add_paged(1, 2, 1);
  batch.page_indices = {3, 5, 1, 2, 4};
  CHECK(batch.kv_indptr == std::vector<std::int32_t>{0, 3, 5});
  const Plan plan = plan_or_fail(test::paged_spec(1), test::one_kernel(16, 32), batch, 2);
  const Tables tables = read_plan(plan);
  REQUIRE(tables.requests.size() == 2);
  CHECK(tables.requests[0].qo_begin == 0);
  CHECK(tables.requests[0].kv_begin == 0);
  CHECK(tables.requests[0].kv_len == 3);
  CHECK(tables.requests[1].qo_begin == 1);
  CHECK(tables.requests[1].kv_begin == 3);
  CHECK(tables.requests[1].kv_len == 2);
  CHECK(tables.items ==
        std::vector<WorkItem>{{0, 0, 0, 0, 3, 0, -1, -1}, {1, 0, 0, 0, 2, 0, -1, -1}});
  CHECK(plan.kv_rows == 5);
}

}  // namespace
}  // namespace attnloom
