// SPDX-License-Identifier: Apache-2.0
// With a scratch and the block of a plan before, planning allocates nothing: counted by operator
// new of this program.
#include <algorithm>

#include "../abi/count_allocations.h"
#include "shared_fixture.h"

namespace attnloom {
namespace {

using test::Batch;

// Calls of operator new by make_plan(second), after make_plan(first) with the same scratch. The
// plan is the one that is made without a scratch.
struct Planner {
  Spec spec;
  std::vector<KernelChoice> kernels;
  PlanLimits limits;
  CostModel cost;

  long allocations_of_second(const Workload& first, const Workload& second, Plan* plan) const {
    PlanScratch scratch;
    Result<Plan> made = make_plan(spec, kernels, limits, first, 1, cost, {}, &scratch);
    INFO(made.status().to_string());
    REQUIRE(made.ok());
    const long before = allocations_so_far();
    made = make_plan(spec, kernels, limits, second, 2, cost, std::move(made->block), &scratch);
    const long after = allocations_so_far();
    REQUIRE(made.ok());
    const Result<Plan> fresh = make_plan(spec, kernels, limits, second, 2, cost);
    REQUIRE(fresh.ok());
    CHECK(made->block == fresh->block);
    *plan = std::move(made).value();
    return after - before;
  }
};

Spec paged(int page_size) {
  Spec spec = test::paged_spec(page_size, 4);
  spec.variant.mask.causal = true;
  return spec;
}

Batch batch_of_8_heads() {
  Batch batch;
  batch.kv_heads = 8;
  batch.group_size = 4;
  return batch;
}

// The second batch is the first without its last request, and then the first once more.
Plan check_nothing_allocated(const Planner& planner, const Batch& batch,
                             const std::vector<SharedLevel>& levels = {}) {
  Workload whole = batch.view();
  whole.levels = levels;
  Plan plan;
  CHECK(planner.allocations_of_second(whole, whole, &plan) == 0);
  if (!levels.empty()) return plan;  // they are of this batch
  Workload less = whole;
  const std::size_t requests = whole.qo_indptr.size() - 1;
  less.qo_indptr = whole.qo_indptr.first(requests);
  less.kv_indptr = whole.kv_indptr.first(requests);
  if (!whole.last_page_len.empty()) less.last_page_len = whole.last_page_len.first(requests - 1);
  Plan smaller;
  if (whole.block_indptr.empty()) CHECK(planner.allocations_of_second(whole, less, &smaller) == 0);
  return plan;
}

TEST_CASE("decode: nothing is allocated by the second plan") {
  for (const bool varied : {false, true}) {
    Batch batch = batch_of_8_heads();
    for (int r = 0; r < 256; ++r) batch.add_paged(1, varied ? 1 + r * 7919 % 3000 : 1024, 16);
    check_nothing_allocated({paged(16), test::auto_kernels(), batch.limits(132), {}}, batch);
  }
}

TEST_CASE("a mixed batch on the contiguous cut: nothing is allocated by the second plan") {
  Batch batch = batch_of_8_heads();
  for (int r = 0; r < 20; ++r) batch.add_paged(r == 7 ? 700 : 1, 2000 + 900 * r, 16);
  const DeviceProfile profile = kH200Profile;
  const Planner planner{paged(16), test::auto_kernels(), batch.limits(132), {.profile = &profile}};
  CHECK(check_nothing_allocated(planner, batch).figures.contiguous);
}

TEST_CASE("block-sparse rows with a mirror: nothing is allocated by the second plan") {
  Batch batch = batch_of_8_heads();
  for (int r = 0; r < 30; ++r) {
    std::vector<std::vector<int>> lists;
    for (int row = 0; row < 3; ++row) {
      lists.emplace_back();
      for (int column = row; column < 200; column += 1 + row) lists.back().push_back(column);
    }
    batch.add_blocks(40, 16 * 200, lists);
  }
  const Planner planner{test::bsr_spec(16, 16, 4), test::auto_kernels(), batch.limits(132), {}};
  check_nothing_allocated(planner, batch);
}

// A trunk of all requests, two branches, and pages of each one's own.
Batch tree_of(int requests) {
  Batch batch = batch_of_8_heads();
  for (int r = 0; r < requests; ++r) {
    std::vector<std::int32_t> row;
    for (int p = 0; p < 96; ++p)
      row.push_back(p < 32 ? p : p < 64 ? p + 1000 * (1 + r % 2) : p + 10000 * (1 + r));
    test::add_row(batch, row, 1, 16);
  }
  return batch;
}

TEST_CASE("prefixes found in a mirror: nothing is allocated by the second plan") {
  const Batch batch = tree_of(64);
  Planner planner{paged(16), test::auto_kernels(), batch.limits(132), {}};
  planner.limits.share_prefixes = true;
  CHECK(check_nothing_allocated(planner, batch).figures.prefix_tiles == 2);
}

TEST_CASE("prefixes of given levels: nothing is allocated by the second plan") {
  Batch batch = tree_of(64);
  // The trunk only: the branches alternate, and groups are of neighbours.
  std::vector<std::int32_t> groups{0, 64}, pages{0, 32}, each{0}, none{0};
  for (int r = 1; r <= 64; ++r) {
    each.push_back(r);
    none.push_back(0);
  }
  Planner planner{paged(16), test::auto_kernels(), batch.limits(132), {}};
  planner.limits.share_prefixes = true;
  const Plan plan = check_nothing_allocated(planner, batch, {{groups, pages}, {each, none}});
  CHECK(plan.figures.prefix_tiles == 2);
}

TEST_CASE("a batch-invariant plan: nothing is allocated by the second") {
  Batch batch = batch_of_8_heads();
  for (int r = 0; r < 40; ++r) batch.add_paged(r % 9 == 0 ? 300 : 1, 1000 + 500 * r, 16);
  Planner planner{paged(16), test::auto_kernels(), batch.limits(132), {}};
  planner.limits.batch_invariant = true;
  check_nothing_allocated(planner, batch);
}

TEST_CASE("params of long names: nothing is allocated by the second plan") {
  Batch batch = batch_of_8_heads();
  for (int r = 0; r < 4; ++r) batch.add(1, 100 + r);
  Planner planner{test::ragged_spec(4), test::auto_kernels(), batch.limits(132), {}};
  const std::string name = "cap_of_all_the_query_heads_of_the_model";
  planner.spec.variant.params = {{name, ParamType::kF32}};
  Workload workload = batch.view();
  workload.scalars = {{name, 30}};
  Plan plan;
  CHECK(planner.allocations_of_second(workload, workload, &plan) == 0);
}

TEST_CASE("after a release a scratch gives out as much again in other pieces") {
  PlanScratch scratch;
  for (int i = 0; i < 100; ++i) {
    void* piece = scratch.allocate(4096 + 16 * i, 16);
    CHECK(reinterpret_cast<std::uintptr_t>(piece) % 16 == 0);
  }
  scratch.release();
  const long before = allocations_so_far();
  std::byte* last = nullptr;
  bool apart = true;
  for (int i = 0; i < 100; ++i) {
    auto* piece = static_cast<std::byte*>(scratch.allocate(4096 + 16 * (99 - i), 16));
    std::fill_n(piece, 4096, std::byte{1});
    apart = apart && (last == nullptr || piece >= last + 4096);
    last = piece;
  }
  CHECK(allocations_so_far() == before);
  CHECK(apart);
  CHECK(reinterpret_cast<std::uintptr_t>(scratch.allocate(100, 256)) % 256 == 0);
}

}  // namespace
}  // namespace attnloom
