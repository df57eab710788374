// SPDX-License-Identifier: Apache-2.0
#include "plan/levels.h"

#include <catch2/catch.hpp>

#include "shared_fixture.h"

namespace attnloom {
namespace {

using Catch::Contains;
using test::Batch;

// Four requests of one query token; all begin with pages 1 2, the first two go on with page 3.
struct Cascade {
  Batch batch;
  std::vector<std::int32_t> qo[2] = {{0, 4}, {0, 2, 3, 4}};
  std::vector<std::int32_t> pages[2] = {{0, 2}, {0, 1, 1, 1}};
  bool mirror = true;

  Cascade() {
    test::add_row(batch, {1, 2, 3, 90}, 1, 16, 5);
    test::add_row(batch, {1, 2, 3, 91}, 1, 16, 5);
    test::add_row(batch, {1, 2, 92}, 1, 16, 5);
    test::add_row(batch, {1, 2, 93}, 1, 16, 5);
  }

  Status check(const Spec& spec = test::paged_spec(16)) const {
    Workload workload = batch.view();
    if (!mirror) workload.page_indices = {};
    workload.levels = {{qo[0], pages[0]}, {qo[1], pages[1]}};
    return check_workload(spec, workload);
  }
};

TEST_CASE("Levels become the forest that their page tables hold") {
  const Cascade cascade;
  REQUIRE(cascade.check().ok());
  Workload workload = cascade.batch.view();
  workload.levels = {{cascade.qo[0], cascade.pages[0]}, {cascade.qo[1], cascade.pages[1]}};
  const PrefixForest forest = forest_of_levels(workload);
  REQUIRE(forest.nodes.size() == 2);
  CHECK(forest.nodes[0].end == 2);
  CHECK(forest.nodes[0].member_end == 4);
  CHECK(forest.nodes[1].parent == 0);
  CHECK(forest.nodes[1].begin == 2);
  CHECK(forest.nodes[1].end == 3);
  CHECK(forest.nodes[1].first_member == 0);
  CHECK(forest.nodes[1].member_end == 2);
}

TEST_CASE("Levels that are none are refused with the request's number") {
  Cascade cascade;
  std::string path;
  std::string cause;
  SECTION("a group that cuts a request") {
    cascade.batch.qo_indptr = {0, 1, 3, 4, 5};
    cascade.qo[0] = {0, 2, 5};
    cascade.pages[0] = {0, 2, 2};
    cascade.qo[1] = {0, 5};
    cascade.pages[1] = {0, 0};
    path = "workload.levels[0].qo_indptr[1]";
    cause = "request 1: wanted a border between requests, given token 2";
  }
  SECTION("overlapping groups") {
    cascade.qo[0] = {0, 1, 4};
    cascade.pages[0] = {0, 2, 4};
    cascade.qo[1] = {0, 2, 4};
    cascade.pages[1] = {0, 1, 1};
    path = "workload.levels[1].qo_indptr[0]";
    cause =
        "request 1: wanted a group within one of the level before, given one of requests 0 to 1";
  }
  SECTION("a page that is not whole") {
    cascade.pages[0] = {0, 3};
    path = "workload.levels[0].page_indptr[1]";
    cause = "request 2: wanted at most 2 pages over all levels, given 3";
  }
  SECTION("pages behind a row's last") {
    cascade.pages[1] = {0, 1, 3, 3};
    path = "workload.levels[1].page_indptr[2]";
    cause = "request 2: wanted at most 3 pages over all levels, given 4";
  }
  SECTION("members with other pages") {
    cascade.batch.page_indices[5] = 40;
    path = "workload.page_indices[5]";
    cause =
        "request 1: wanted page 2 of request 0, as they share it in group 0 of levels[0], given 40";
  }
  SECTION("too few tokens") {
    cascade.qo[0] = {0, 3};
    path = "workload.levels[0].qo_indptr[1]";
    cause = "wanted the 4 query tokens of the batch, given 3";
  }
  SECTION("arrays of two lengths") {
    cascade.pages[0] = {0, 1, 2};
    path = "workload.levels[0].page_indptr";
    cause = "wanted 2 entries, given 3";
  }
  SECTION("falling page numbers") {
    cascade.pages[1] = {0, 1, 0, 1};
    path = "workload.levels[1].page_indptr[2]";
    cause = "wanted at least 1, given 0";
  }
  SECTION("no groups at all") {
    cascade.qo[1] = {};
    cascade.pages[1] = {};
    path = "workload.levels[1].qo_indptr";
    cause = "wanted groups + 1 entries, given 0";
  }
  const Status status = cascade.check();
  REQUIRE_FALSE(status.ok());
  CHECK(status.code == Code::kWorkloadInvalid);
  CHECK(status.path == path);
  CHECK_THAT(status.cause, Contains(cause));
}

TEST_CASE(
    "Without a mirror, pages are taken at the caller's word; a layout without pages is refused") {
  Cascade cascade;
  cascade.batch.page_indices[5] = 40;
  cascade.mirror = false;
  CHECK(cascade.check().ok());
  Batch ragged;
  ragged.add(1, 5);
  Workload workload = ragged.view();
  workload.levels = {{ragged.qo_indptr, ragged.qo_indptr}};
  const Status status = check_workload(test::ragged_spec(), workload);
  REQUIRE_FALSE(status.ok());
  CHECK(status.path == "workload.levels");
}

}  // namespace
}  // namespace attnloom
