// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include "plan_fixture.h"

namespace attnloom {
namespace {

TEST_CASE("offsets and bounds of a small plan, worked by hand") {
  // 2 CTAs; 3 requests of 40 packed rows in all, class 16: floor((40 + 3 * 15) / 16) = 5 tiles, on
  // 2 heads 10, and 2 more items by splitting. Partial rows: 2 * 2 chunks of 16.
  Spec spec = test::ragged_spec(4);
  spec.head_dim = {128, 96};
  const PlanLimits limits{
      .max_batch = 3, .max_qo_tokens = 10, .q_heads = 8, .kv_heads = 2, .sm_count = 2};
  const Result<PlanLayout> layout = plan_layout(spec, test::one_kernel(16, 32), limits);
  REQUIRE(layout.ok());
  CHECK(layout->max_ctas == 2);
  CHECK(layout->max_items == 12);
  CHECK(layout->max_merges == 2);
  CHECK(layout->max_partial_rows == 64);
  CHECK(layout->queues_offset == 176);  // behind the header
  CHECK(layout->queues_offset == loom::kQueuesOffset);
  CHECK(layout->requests_offset == 208);   // 2 queues of 16
  CHECK(layout->merges_offset == 352);     // 3 rows of 48
  CHECK(layout->counters_offset == 368);   // 2 rows of 8
  CHECK(layout->items_offset == 384);      // 2 ints, rounded up
  CHECK(layout->plan_bytes == 768);        // 12 items of 32
  CHECK(layout->partial_o_offset == 768);  // the next multiple of 256
  CHECK(layout->partial_lse_offset == 768 + 64 * 96 * 4);
  CHECK(layout->workspace_bytes == 768 + 64 * 96 * 4 + 256);
}

TEST_CASE("a set is bounded by its most demanding kernel") {
  const Spec spec = test::ragged_spec();
  const PlanLimits limits{
      .max_batch = 4, .max_qo_tokens = 1000, .q_heads = 1, .kv_heads = 1, .sm_count = 10};
  const Result<PlanLayout> layout = plan_layout(spec, test::auto_kernels(), limits);
  REQUIRE(layout.ok());
  CHECK(layout->max_ctas == 20);
  CHECK(layout->max_partial_rows == 2560);  // 2 * 20 * 64 = 2 * 10 * 128
  CHECK(layout->max_items == (1000 + 4 * 127) / 128 + 20);
}

TEST_CASE("a limit of CTAs bounds the grid and all that follows from it") {
  const Spec spec = test::ragged_spec();
  PlanLimits limits{
      .max_batch = 4, .max_qo_tokens = 4, .q_heads = 1, .kv_heads = 1, .sm_count = 10};
  limits.max_ctas = 7;
  const Result<PlanLayout> layout = plan_layout(spec, test::auto_kernels(), limits);
  REQUIRE(layout.ok());
  CHECK(layout->max_ctas == 7);
  CHECK(layout->max_merges == 7);
  CHECK(layout->max_partial_rows == 2 * 7 * 128);
  CHECK(layout->max_items == 4 + 7);
  test::Batch batch;
  for (int r = 0; r < 4; ++r) batch.add(1, 5000);
  const Result<Plan> plan = make_plan(spec, test::auto_kernels(), limits, batch.view(), 1);
  REQUIRE(plan.ok());
  CHECK(plan->grid == 7);
  limits.max_ctas = 100;  // more than the 20 that are resident
  CHECK(make_plan(spec, test::auto_kernels(), limits, batch.view(), 1)->grid == 20);
}

TEST_CASE("limits that make no sense are refused by name") {
  const Spec spec = test::ragged_spec(4);
  const PlanLimits good{
      .max_batch = 1, .max_qo_tokens = 1, .q_heads = 8, .kv_heads = 2, .sm_count = 1};
  REQUIRE(plan_layout(spec, test::one_kernel(16, 32), good).ok());
  const auto refused = [&](auto change, const std::string& path, const std::string& cause = "") {
    PlanLimits limits = good;
    change(limits);
    const Result<PlanLayout> layout = plan_layout(spec, test::one_kernel(16, 32), limits);
    REQUIRE_FALSE(layout.ok());
    CHECK(code_name(layout.status().code) == "WORKLOAD_INVALID");
    CHECK(layout.status().path == path);
    CHECK_THAT(layout.status().cause, Catch::Contains(cause));
  };
  refused([](PlanLimits& l) { l.max_batch = -1; }, "limits.max_batch");
  refused([](PlanLimits& l) { l.max_qo_tokens = -1; }, "limits.max_qo_tokens");
  refused([](PlanLimits& l) { l.kv_heads = 0; }, "limits.kv_heads",
          "wanted 1 to 2147483647 in limits.kv_heads, given 0");
  refused([](PlanLimits& l) { l.q_heads = 6; }, "limits.q_heads");
  refused([](PlanLimits& l) { l.sm_count = 0; }, "limits.sm_count");
  refused([](PlanLimits& l) { l.max_ctas = -1; }, "limits.max_ctas");
}

TEST_CASE("limits of nothing hold an empty batch and no other") {
  const PlanLimits nothing{.q_heads = 1, .kv_heads = 1, .sm_count = 1};
  test::Batch batch;
  CHECK(make_plan(test::ragged_spec(), test::one_kernel(16, 32), nothing, batch.view(), 1).ok());
  batch.add(1, 1);
  const Result<Plan> plan =
      make_plan(test::ragged_spec(), test::one_kernel(16, 32), nothing, batch.view(), 1);
  REQUIRE_FALSE(plan.ok());
  CHECK(plan.status().cause == "needed 1, available 0; request 0 is the first without room");
}

TEST_CASE("bounds past int32 are refused with needed and available") {
  const PlanLimits limits{
      .max_batch = 1 << 30, .max_qo_tokens = 1 << 30, .q_heads = 8, .kv_heads = 8, .sm_count = 132};
  const Result<PlanLayout> layout =
      plan_layout(test::ragged_spec(), test::one_kernel(16, 32), limits);
  REQUIRE_FALSE(layout.ok());
  CHECK(code_name(layout.status().code) == "PLAN_BOUND");
  CHECK_THAT(layout.status().cause, Catch::Contains("needed 8589934724, available 2147483647"));
}

TEST_CASE("a merge kernel takes no plan") {
  Spec spec = test::ragged_spec();
  spec.kernel = KernelKind::kMerge;
  const KernelChoice merge{.family = "merge", .threads = 128};
  const PlanLimits limits{
      .max_batch = 1, .max_qo_tokens = 1, .q_heads = 1, .kv_heads = 1, .sm_count = 1};
  CHECK_FALSE(plan_layout(spec, {merge}, limits).ok());
}

}  // namespace
}  // namespace attnloom
