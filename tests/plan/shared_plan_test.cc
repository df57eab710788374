// SPDX-License-Identifier: Apache-2.0
// Plans of batches that share prefixes: the states that a merge lists are those of all keys of its
// request, once each and in their order, and every bound holds.
#include <catch2/catch.hpp>
#include <map>
#include <numeric>
#include <random>

#include "plan/layout.h"
#include "shared_fixture.h"

namespace attnloom {
namespace {

using test::Batch;
using test::Tables;

Plan plan_shared(const Spec& spec, const std::vector<KernelChoice>& kernels, const Batch& batch,
                 int sm_count) {
  PlanLimits limits = batch.limits(sm_count);
  limits.share_prefixes = true;
  Result<Plan> plan = make_plan(spec, kernels, limits, batch.view(), 1);
  INFO(plan.status().to_string());
  REQUIRE(plan.ok());
  const Result<PlanLayout> layout = plan_layout(spec, kernels, limits);
  CHECK(plan->block.size() <= layout->plan_bytes);
  return std::move(plan).value();
}

struct Range {
  int begin;
  int end;
};

class Reader {
 public:
  Reader(const std::vector<KernelChoice>& kernels, const Plan& plan)
      : plan_(plan), tables_(test::read_plan(plan)) {
    const loom::PlanHeader& header = tables_.header;
    for (const loom::WorkItem& item : test::read_table<loom::WorkItem>(
             plan, header.items_offset, header.item_count)) {  // one a gang
      const int rows = kernels[plan.kernel].classes[item.tile_class].q;
      for (int lane = 0; lane < header.lanes; ++lane) {
        const loom::RequestRow& row = tables_.requests[item.request];
        const Range keys{item.kv_begin, item.kv_end};
        if (item.partial_row < 0) {
          whole_[{item.request, item.kv_head + lane}].push_back(keys);
          continue;
        }
        const int first = item.partial_row + lane * rows;
        for (int r = 0; r < rows; ++r) CHECK(written_.emplace(first + r, keys).second);
        if (row.member_count == 0) ++arrivals_[item.merge + lane];
        for (int m = 0; m < row.member_count; ++m)
          ++arrivals_[member(row.qo_begin + m).merge + item.kv_head + lane];
        if (row.member_count == 0) merges_[{item.request, item.kv_head + lane}] = item.merge + lane;
        for (int m = 0; m < row.member_count; ++m) {
          const loom::SharedMember found = member(row.qo_begin + m);
          merges_[{found.request, item.kv_head + lane}] = found.merge + item.kv_head + lane;
        }
      }
    }
  }

  // Requests whose merges list runs of states.
  int check_request(int request, int head) {
    if (merges_.count({request, head}) == 0) return 0;
    const int index = merges_.at({request, head});
    const loom::MergeTile& merge = tables_.merges[static_cast<std::size_t>(index)];
    CHECK(arrivals_[index] == merge.count);
    if (merge.partial_row >= 0) return 0;
    int at = 0;
    int states = 0;
    for (int r = ~merge.partial_row; states < merge.count; ++r) {
      const loom::StateRun run =
          test::read_table<loom::StateRun>(plan_, tables_.header.state_runs_offset, r + 1)[r];
      for (int c = 0; c < run.chunks; ++c, ++states) {
        const int row = run.row + (c * tables_.header.kv_heads + head) * run.rows;
        const auto keys = written_.find(row);
        REQUIRE(keys != written_.end());
        CHECK(keys->second.begin == at);
        at = keys->second.end;
      }
    }
    CHECK(at == tables_.requests[static_cast<std::size_t>(request)].kv_len);
    CHECK(whole_.count({request, head}) == 0);
    return 1;
  }

  std::int64_t partial_rows() const { return written_.empty() ? 0 : written_.rbegin()->first + 1; }

 private:
  loom::SharedMember member(int index) const {
    return test::read_table<loom::SharedMember>(plan_, tables_.header.shared_members_offset,
                                                index + 1)[index];
  }

  const Plan& plan_;
  const Tables tables_;
  std::map<int, Range> written_;  // partial rows
  std::map<int, int> arrivals_;   // at each merge
  std::map<std::pair<int, int>, int> merges_;
  std::map<std::pair<int, int>, std::vector<Range>> whole_;
};

TEST_CASE("a shared plan merges every key of every request once, in order") {
  std::mt19937 random(Catch::rngSeed());
  int shared = 0;
  for (int run = 0; run < 150; ++run) {
    const int page_size = run % 2 == 0 ? 1 : 16;
    Spec spec = test::paged_spec(page_size, run % 3 == 0 ? 7 : 4);
    spec.variant.mask.causal = run % 5 != 0;
    Batch batch = test::random_shared_batch(random, page_size, page_size == 1 ? 2000 : 150);
    batch.group_size = spec.group_size;
    batch.kv_heads = 1 + run % 3 * 2;
    const std::vector<KernelChoice> kernels =
        run % 4 == 0 ? test::one_kernel(64, 64) : test::auto_kernels();
    const int sm_count = run % 7 == 0 ? 2 : 60;
    const Plan plan = plan_shared(spec, kernels, batch, sm_count);
    Reader reader(kernels, plan);
    PlanLimits limits = batch.limits(sm_count);
    limits.share_prefixes = true;
    CHECK(reader.partial_rows() <= plan_layout(spec, kernels, limits)->max_partial_rows);
    for (int r = 0; r + 1 < std::ssize(batch.qo_indptr); ++r) {
      for (int head = 0; head < batch.kv_heads; ++head) {
        shared += reader.check_request(r, head);
      }
    }
  }
  CHECK(shared > 100);
}

// Two requests of one row, a page of 1024 tokens before 16 of their own each; one CTA a head.
TEST_CASE("the map of a prefix of two requests") {
  const Spec spec = test::paged_spec(16, 4);
  Batch batch;
  batch.group_size = 4;
  std::vector<std::int32_t> row(64);
  for (int p = 0; p < 64; ++p) row[p] = p;
  row.push_back(100);
  test::add_row(batch, row, 1, 16, 5);
  row.back() = 101;
  test::add_row(batch, row, 1, 16, 9);
  const Plan plan = plan_shared(spec, test::one_kernel(16, 64), batch, 1);
  const Tables tables = test::read_plan(plan);
  REQUIRE(tables.requests.size() == 3);
  CHECK(plan.figures.prefix_tiles == 1);
  REQUIRE(tables.items.size() == 3);
  CHECK(tables.items[0] == loom::WorkItem{2, 0, 0, 0, 1024, 0, 32, 0});
  CHECK(tables.items[1] == loom::WorkItem{1, 0, 0, 1024, 1033, 0, 16, 1});
  CHECK(tables.items[2] == loom::WorkItem{0, 0, 0, 1024, 1029, 0, 0, 0});
  CHECK(tables.merges == std::vector<loom::MergeTile>{{~0, 2}, {~2, 2}});
  const auto runs = test::read_table<loom::StateRun>(plan, tables.header.state_runs_offset, 4);
  const int want[4][3] = {{32, 16, 1}, {0, 16, 1}, {36, 16, 1}, {16, 16, 1}};
  for (int r = 0; r < 4; ++r) {
    CHECK(runs[r].row == want[r][0]);
    CHECK(runs[r].rows == want[r][1]);
    CHECK(runs[r].chunks == want[r][2]);
  }
  const auto members =
      test::read_table<loom::SharedMember>(plan, tables.header.shared_members_offset, 2);
  CHECK(members[1].request == 1);
  CHECK(members[1].merge == 1);
}

// 128 decodes behind one prefix: its tiles keep every CTA busy before any suffix begins, so that
// the last state of an output is its request's own and no CTA merges for all members of a tile.
TEST_CASE("prefix tiles come first in the queues and fill all of them") {
  const Spec spec = test::paged_spec(16, 4);
  Batch batch;
  batch.group_size = 4;
  batch.kv_heads = 8;
  std::vector<std::int32_t> row(512);
  std::iota(row.begin(), row.end(), 0);
  for (int r = 0; r < 128; ++r) {
    row.resize(512);
    for (int p = 0; p < 16; ++p) row.push_back(512 + 16 * r + p);
    test::add_row(batch, row, 1, 16);
  }
  const Plan plan = plan_shared(spec, test::auto_kernels(), batch, 128);
  const Tables tables = test::read_plan(plan);
  REQUIRE(plan.figures.prefix_tiles == 4);
  const auto is_prefix = [&](int item) { return tables.items[item].request >= 128; };
  for (const loom::CtaQueue& queue : tables.queues) {
    REQUIRE(queue.begin + 1 < queue.end);
    CHECK(is_prefix(queue.begin));
    CHECK(tables.items[queue.begin].kv_end - tables.items[queue.begin].kv_begin == 2048);
    for (int item = queue.begin + 1; item < queue.end; ++item) CHECK(!is_prefix(item));
  }
}

TEST_CASE("without leave, or of a batch that shares nothing, a plan is what it was") {
  const Spec spec = test::paged_spec(16, 4);
  Batch batch;
  batch.group_size = 4;
  test::add_row(batch, {1, 2, 3}, 1, 16);
  test::add_row(batch, {4, 5, 6}, 1, 16);
  const Plan with = plan_shared(spec, test::auto_kernels(), batch, 4);
  const Tables tables = test::read_plan(with);
  CHECK(tables.header.state_runs_offset == with.block.size());
  CHECK(with.figures.prefix_tiles == 0);
  Workload workload = batch.view();
  workload.page_indices = {};
  PlanLimits limits = batch.limits(4);
  limits.share_prefixes = true;
  CHECK(make_plan(spec, test::auto_kernels(), limits, workload, 1)->block == with.block);
}

}  // namespace
}  // namespace attnloom
