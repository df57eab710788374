// SPDX-License-Identifier: Apache-2.0
// The request table: rows of blocks, padded slots, custom masks; and what is refused of them.
#include "plan/rows.h"

#include <catch2/catch.hpp>

#include "plan_fixture.h"

namespace attnloom {
namespace {

using test::Batch;

void check_refused(const Spec& spec, const Workload& workload, const std::string& path,
                   const std::string& cause) {
  const Status status = check_workload(spec, workload);
  CHECK(code_name(status.code) == "WORKLOAD_INVALID");
  CHECK(status.path == path);
  CHECK_THAT(status.cause, Catch::Contains(cause));
  CHECK_FALSE(status.remedy.empty());
}

// Two requests in blocks of 2 x 3: one of 3 tokens and 7 keys, one of 2 tokens and 4 keys.
Batch two_requests() {
  Batch batch;
  batch.add_blocks(3, 7, {{2, 0}, {}}).add_blocks(2, 4, {{1}});
  batch.group_size = 4;
  return batch;
}

TEST_CASE("each row of blocks is an entry that keeps its request's lengths") {
  const Spec spec = test::bsr_spec(2, 3, 4);
  const Batch batch = two_requests();
  REQUIRE(check_workload(spec, batch.view()).ok());
  const auto rows = make_row_table(spec, batch.view()).rows;
  // batch, qo_begin, qo_len, q_first, q_end, kv_begin, kv_len, walk_len, list_begin
  CHECK(rows == std::pmr::vector<loom::RequestRow>{{0, 0, 3, 0, 2, 0, 7, 6, 0, 0, 0},
                                                   {0, 0, 3, 2, 3, 0, 7, 0, 2, 0, 0},
                                                   {1, 3, 2, 0, 2, 7, 4, 3, 2, 0, 0}});
}

TEST_CASE("no tile crosses a row of blocks, and a row larger than a tile makes several") {
  const Batch batch = two_requests();
  const test::Tables small = test::read_plan(
      test::plan_or_fail(test::bsr_spec(2, 3, 4), test::one_kernel(16, 32), batch, 8));
  std::vector<int> first_rows;
  for (const loom::WorkItem& item : small.items) first_rows.push_back(item.q_row);
  std::sort(first_rows.begin(), first_rows.end());
  CHECK(first_rows == std::vector<int>{0, 0, 8});  // 8 packed rows, 4, and 8 of the second request
  Batch tall;
  tall.group_size = 4;
  tall.add_blocks(10, 7, {{2, 0}});
  const test::Tables large = test::read_plan(
      test::plan_or_fail(test::bsr_spec(16, 3, 4), test::one_kernel(16, 32), tall, 8));
  REQUIRE(large.items.size() == 3);  // 40 packed rows
  for (const loom::WorkItem& item : large.items) CHECK(item.request == 0);
}

TEST_CASE("the table is bounded by the limits") {
  CHECK(most_rows(test::ragged_spec(), 3, 100) == 3);
  CHECK(most_rows(test::bsr_spec(16, 1), 3, 100) == 9);  // (100 + 3 * 15) / 16
  CHECK(most_rows(test::bsr_spec(1, 1), 3, 100) == 100);
  CHECK(most_rows(test::bsr_spec(128, 1), 1000, 5) == 5);
}

TEST_CASE("a request of a padded cache begins in its own slot") {
  Spec spec = test::ragged_spec();
  spec.layout.kv = KvLayout::kPadded;
  Batch batch;
  batch.add(1, 5).add(2, 0).add(1, 3);
  batch.kv_start = {2, 7, 4};
  Workload workload = batch.view();
  workload.kv_capacity = 7;
  REQUIRE(check_workload(spec, workload).ok());
  const Result<Plan> plan = make_plan(spec, test::one_kernel(16, 32), batch.limits(2), workload, 1);
  REQUIRE(plan.ok());
  CHECK(plan->kv_slots == 3);
  CHECK(plan->kv_rows == 7);
  const std::vector<loom::RequestRow> rows = test::read_plan(*plan).requests;
  CHECK(rows[0].kv_begin == 2);
  CHECK(rows[2].kv_begin == 4);
  CHECK(rows[2].batch == 2);
  CHECK(rows[2].kv_len == 3);

  check_refused(
      spec,
      [&] {
        Workload w = workload;
        w.kv_capacity = 6;
        return w;
      }(),
      "workload.kv_start[0]", "capacity 6, given 2 + 5");
  check_refused(
      spec,
      [&] {
        Workload w = workload;
        w.kv_capacity = -1;
        return w;
      }(),
      "workload.kv_capacity", "given -1");
  batch.kv_start = {2, -1, 4};
  check_refused(spec, batch.view(), "workload.kv_start[1]", "given -1");
  batch.kv_start = {2, 0};
  check_refused(spec, batch.view(), "workload.kv_start", "wanted 3 entries, given 2");
  batch.kv_start.clear();
  workload = batch.view();
  workload.kv_capacity = 4;
  check_refused(spec, workload, "workload.kv_indptr[1]", "capacity 4, given 0 + 5");
  workload = batch.view();  // neither given: what the longest request needs
  REQUIRE(check_workload(spec, workload).ok());
  CHECK(make_plan(spec, test::one_kernel(16, 32), batch.limits(2), workload, 1)->kv_rows == 5);
}

TEST_CASE("B13: each request's mask begins on a byte of its own") {
  Spec spec = test::ragged_spec();
  spec.variant.mask.custom = true;
  Batch batch;
  batch.add(1, 3).add(1, 5).add(0, 9).add(3, 3).add(1, 8);
  const RowTable table = make_row_table(spec, batch.view());
  std::vector<long long> begins;
  for (const loom::RequestRow& row : table.rows) begins.push_back(row.mask_begin);
  CHECK(begins == std::vector<long long>{0, 1, 2, 2, 4});
  CHECK(table.mask_bytes == 5);
}

TEST_CASE("B47: the mask of a long request, and what lies behind it, in 64 bits") {
  Spec spec = test::ragged_spec();
  spec.variant.mask.custom = true;
  Batch batch;
  batch.add(131072, 131072).add(1, 1);
  const RowTable table = make_row_table(spec, batch.view());
  CHECK(table.rows[1].mask_begin == 2147483648);
  CHECK(table.mask_bytes == 2147483649);
}

TEST_CASE("B61: lists of other lengths, or outside of the request, are refused") {
  const Spec spec = test::bsr_spec(2, 3, 4);
  const Batch good = two_requests();
  Batch batch = good;
  batch.block_indptr.push_back(3);  // a row for 4 query tokens
  check_refused(spec, batch.view(), "workload.block_indptr", "wanted 4 entries, given 5");
  batch = good;
  batch.block_indptr = {1, 2, 2, 3};
  check_refused(spec, batch.view(), "workload.block_indptr[0]", "wanted 0, given 1");
  batch.block_indptr = {0, 2, 1, 3};
  check_refused(spec, batch.view(), "workload.block_indptr[2]", "at least 2, given 1");
  batch = good;
  batch.block_indices[0] = 3;
  check_refused(spec, batch.view(), "workload.block_indices[0]",
                "request 0: wanted a block from 0 to 2, given 3");
  batch.block_indices[0] = -1;
  check_refused(spec, batch.view(), "workload.block_indices[0]", "given -1");
  batch.block_indices[0] = 0;
  check_refused(spec, batch.view(), "workload.block_indices[1]", "given 0 again");
  batch = good;
  batch.block_indices[2] = 2;  // within the first request's keys, but not within the second's
  check_refused(spec, batch.view(), "workload.block_indices[2]",
                "request 1: wanted a block from 0 to 1, given 2");
  batch = good;
  batch.block_indices.pop_back();
  check_refused(spec, batch.view(), "workload.block_indices", "at least 3 entries, given 2");
  batch = good;
  batch.block_indptr = {0, 2, 2, 5};  // more blocks than the request has keys for
  batch.block_indices.clear();
  check_refused(spec, batch.view(), "workload.block_indptr[3]", "at most 2 blocks of 3 keys");
  check_refused(test::ragged_spec(4), good.view(), "workload.block_indptr", "\"ragged\"");
  batch = good;
  batch.block_indptr.clear();
  check_refused(test::ragged_spec(4), batch.view(), "workload.block_indices", "\"ragged\"");
}

}  // namespace
}  // namespace attnloom
