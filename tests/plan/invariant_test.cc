// SPDX-License-Identifier: Apache-2.0
// Batch-invariant plans: a request is cut the same way whatever stands beside it, within bounds
// that its limits alone give.
#include "plan/invariant.h"

#include <catch2/catch.hpp>
#include <random>
#include <set>
#include <tuple>

#include "plan_fixture.h"

namespace attnloom {
namespace {

using test::Batch;
using test::Tables;

// How an entry is cut on every head: first packed row, keys and tile class of its items.
using Cut = std::set<std::tuple<int, int, int, int>>;

Cut cut_of(const Tables& tables, int request) {
  Cut cut;
  for (const loom::WorkItem& item : tables.items) {
    if (item.request == request)
      cut.emplace(item.q_row, item.kv_begin, item.kv_end, item.tile_class);
  }
  return cut;
}

PlanLimits invariant_limits(const Batch& batch, int sm_count) {
  PlanLimits limits = batch.limits(sm_count);
  limits.batch_invariant = true;
  return limits;
}

Plan invariant_plan(const Spec& spec, const std::vector<KernelChoice>& kernels, const Batch& batch,
                    int sm_count) {
  Result<Plan> plan = make_plan(spec, kernels, invariant_limits(batch, sm_count), batch.view(), 1);
  INFO(plan.status().to_string());
  REQUIRE(plan.ok());
  return std::move(plan).value();
}

std::int64_t partial_rows_of(const Plan& plan, const KernelChoice& kernel) {
  std::int64_t rows = 0;
  const Tables tables = test::read_plan(plan);
  for (const loom::WorkItem& item : tables.items)
    if (item.partial_row >= 0)
      rows = std::max<std::int64_t>(rows, item.partial_row + kernel.classes[item.tile_class].q);
  return rows;
}

struct Lengths {
  int qo;
  int kv;
};

Lengths random_lengths(std::mt19937& random) {
  const int qo[] = {0, 1, 1, 1, 3, 17, 60, 300};
  const int kv[] = {1, 300, 3000, 40000};
  return {qo[random() % 8], static_cast<int>(random() % kv[random() % 4])};
}

TEST_CASE("chunks: 512 tokens at least, 16 items of a head at most, all of them whole KV tiles") {
  CHECK(invariant_chunk({16, 128, 2}, 4, 0) == 512);
  CHECK(invariant_chunk({16, 128, 2}, 4, 16 * 512) == 512);
  CHECK(invariant_chunk({16, 128, 2}, 4, 16 * 512 + 1) == 640);
  CHECK(invariant_chunk({16, 64, 2}, 4, 16 * 512 + 1) == 576);
  CHECK(invariant_chunk({16, 128, 2}, 4, 131072) == 8192);
  CHECK(invariant_chunk({128, 64, 2}, 512, 131072) == 32768);       // 4 tiles of 4 chunks
  CHECK(invariant_chunk({128, 64, 2}, 128 * 9, 131072) == 131072);  // 9 tiles of one
  CHECK(invariant_chunk({128, 64, 2}, 128 * 99, 131072) == 131072);
}

TEST_CASE("one kernel serves every batch: the joint one, or the largest tile for any lengths") {
  CHECK(invariant_kernel(test::auto_kernels()) == 3);
  CHECK(invariant_kernel(test::one_kernel(16, 32)) == 0);
  const std::vector<KernelChoice> singles{test::kernel({{1, 64, 2}}), test::kernel({{16, 64, 2}}),
                                          test::kernel({{256, 64, 2}})};
  CHECK(invariant_kernel(singles) == 1);
}

TEST_CASE("a request is cut the same alone and in 300 random batches") {
  std::mt19937 random(31);
  int split = 0;
  for (int round = 0; round < 300; ++round) {
    CAPTURE(round);
    const int group_size = 1 + static_cast<int>(random() % 5);
    const Spec spec = test::ragged_spec(group_size);
    const auto kernels = round % 2 == 0 ? test::auto_kernels() : test::one_kernel(64, 32);
    const Lengths own = random_lengths(random);
    Batch alone;
    Batch batch;
    alone.group_size = batch.group_size = group_size;
    alone.kv_heads = batch.kv_heads = 1 + static_cast<int>(random() % 4);
    alone.add(own.qo, own.kv);
    const int place = static_cast<int>(random() % 6);
    for (int r = 0; r < 6; ++r) {
      const Lengths other = random_lengths(random);
      if (r == place)
        batch.add(own.qo, own.kv);
      else
        batch.add(other.qo, other.kv);
    }
    const Plan one = invariant_plan(spec, kernels, alone, 132);
    const Plan many = invariant_plan(spec, kernels, batch, 1 + static_cast<int>(random() % 40));
    REQUIRE(one.kernel == many.kernel);
    REQUIRE(cut_of(test::read_plan(one), 0) == cut_of(test::read_plan(many), place));
    split += one.figures.split_tiles > 0 ? 1 : 0;
    const Result<PlanLayout> layout = plan_layout(spec, kernels, invariant_limits(batch, 7));
    REQUIRE(layout.ok());
    REQUIRE(many.figures.items <= layout->max_items);
    REQUIRE(many.figures.split_tiles <= layout->max_merges);
    REQUIRE(partial_rows_of(many, kernels[many.kernel]) <= layout->max_partial_rows);
  }
  CHECK(split > 60);
}

TEST_CASE("the bounds are reached by decodes of long requests") {
  Batch batch;
  batch.group_size = 4;
  batch.kv_heads = 2;
  for (int r = 0; r < 5; ++r) batch.add(1, 40000);
  const Spec spec = test::ragged_spec(4);
  const Result<PlanLayout> layout =
      plan_layout(spec, test::one_kernel(16, 32), invariant_limits(batch, 2));
  REQUIRE(layout.ok());
  CHECK(layout->max_items == 2 * (5 + 5 * 15));
  CHECK(layout->max_merges == 2 * 5);
  CHECK(layout->max_partial_rows == 2 * 5 * 16 * 16);
  const Plan plan = invariant_plan(spec, test::one_kernel(16, 32), batch, 2);
  CHECK(plan.figures.items == layout->max_items);
  CHECK(plan.figures.split_tiles == layout->max_merges);
  CHECK(partial_rows_of(plan, test::one_kernel(16, 32)[0]) == layout->max_partial_rows);
}

TEST_CASE("only as many requests as the limit of tokens allows need the rows of the large class") {
  Batch batch;
  batch.group_size = 4;
  // The joint kernel's classes are 16 and 128 rows: five tokens of a request are needed for the
  // second, and 14 tokens hold two such requests at most.
  batch.add(5, 40000).add(5, 40000).add(1, 40000).add(3, 40000);
  const Spec spec = test::ragged_spec(4);
  const Result<PlanLayout> layout =
      plan_layout(spec, test::auto_kernels(), invariant_limits(batch, 2));
  REQUIRE(layout.ok());
  CHECK(layout->max_partial_rows == 16 * (2 * 128 + 2 * 16));
  const Plan plan = invariant_plan(spec, test::auto_kernels(), batch, 2);
  CHECK(partial_rows_of(plan, test::auto_kernels()[3]) == layout->max_partial_rows);
}

}  // namespace
}  // namespace attnloom
