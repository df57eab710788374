// SPDX-License-Identifier: Apache-2.0
// Tables that contradict themselves, their pool or the plan's bounds, through alm_plan_update: each
// is refused before anything is compiled, with the array, the entry and the request's number.
#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

#include "abi_fixture.h"

namespace {

using Ints = std::vector<std::int32_t>;

std::string spec_of(const std::string& layout) {
  return R"({"attnloom": 1, "kernel": "attention", "target": "sm_90a", "dtype": {"q": "bf16", "kv": "bf16", "o": "bf16"},
    "head_dim": {"qk": 64, "vo": 64}, "group_size": 2, "variant": {"name": "plain"}, "layout": )" +
         layout + "}";
}

// Owns what an alm_workload refers to.
struct Tables {
  Ints qo, kv, last, pages, start, block_indptr, blocks;
  std::int64_t pool = 0, capacity = 0;

  alm_workload view() const {
    const auto array = [](const Ints& values) {
      return alm_index_array{values.data(), static_cast<std::int64_t>(values.size()), 1, ALM_I32};
    };
    alm_workload workload = {};
    workload.struct_bytes = sizeof workload;
    workload.qo_indptr = array(qo);
    workload.kv_indptr = array(kv);
    workload.last_page_len = array(last);
    workload.page_indices = array(pages);
    workload.pool_pages = pool;
    workload.kv_start = array(start);
    workload.kv_capacity = capacity;
    workload.block_indptr = array(block_indptr);
    workload.block_indices = array(blocks);
    return workload;
  }
};

struct Row {
  alm_code code;
  const char* path;
  const char* cause;
  std::function<void(Tables&)> change;
};

void check_rows(const std::string& layout, const Tables& good, const std::vector<Row>& rows) {
  AbiFixture one;
  REQUIRE(one.open(spec_of(layout)).code == ALM_OK);
  REQUIRE(one.create_plan().code == ALM_OK);  // 4 requests, 8 query tokens
  for (const Row& row : rows) {
    Tables tables = good;
    row.change(tables);
    const alm_workload workload = tables.view();
    const Told told =
        tell([&](alm_error** e) { return alm_plan_update(one.plan, &workload, nullptr, e); });
    INFO(row.path << " " << row.cause << " / " << told.path << " " << told.cause);
    CHECK(told.code == row.code);
    CHECK(told.path == row.path);
    CHECK(told.cause.find(row.cause) != std::string::npos);
    CHECK(told.remedy != "");
  }
  alm_text* text = nullptr;
  REQUIRE(alm_context_describe(one.context, &text, nullptr) == ALM_OK);
  CHECK(nlohmann::json::parse(text->data)["counters"]["compiles"] == 0);
  alm_text_free(text);
}

TEST_CASE("page tables that contradict themselves, their pool or the bounds") {
  const Tables good{
      .qo = {0, 1, 2, 3}, .kv = {0, 2, 2, 3}, .last = {5, 0, 16}, .pages = {4, 0, 3}, .pool = 5};
  check_rows(
      R"({"kv": "paged", "page_size": 16})", good,
      {
          {ALM_WORKLOAD_INVALID, "workload.page_indices[1]",
           "request 0, entry 1: wanted a page from 0 to 4, given 5",
           [](Tables& t) { t.pages[1] = 5; }},
          {ALM_WORKLOAD_INVALID, "workload.page_indices[2]",
           "request 2, entry 0: wanted a page from 0 to 4, given -1",
           [](Tables& t) { t.pages[2] = -1; }},
          {ALM_WORKLOAD_INVALID, "workload.page_indices", "wanted at least 3 entries, given 2",
           [](Tables& t) { t.pages.pop_back(); }},
          {ALM_WORKLOAD_INVALID, "workload.pool_pages", "is required with page_indices",
           [](Tables& t) { t.pool = 0; }},
          {ALM_WORKLOAD_INVALID, "workload.kv_indptr[2]", "request 1: wanted at least 2, given 1",
           [](Tables& t) { t.kv[2] = 1; }},
          {ALM_WORKLOAD_INVALID, "workload.kv_indptr[0]", "wanted 0, given 1",
           [](Tables& t) { t.kv[0] = 1; }},
          {ALM_WORKLOAD_INVALID, "workload.kv_indptr", "wanted 4 entries, given 3",
           [](Tables& t) { t.kv.pop_back(); }},
          {ALM_WORKLOAD_INVALID, "workload.qo_indptr[3]", "request 2: wanted at least 2, given -1",
           [](Tables& t) { t.qo[3] = -1; }},
          {ALM_WORKLOAD_INVALID, "workload.last_page_len[0]",
           "request 0: wanted 1 to page_size 16, given 0", [](Tables& t) { t.last[0] = 0; }},
          {ALM_WORKLOAD_INVALID, "workload.last_page_len[2]",
           "request 2: wanted 1 to page_size 16, given 17", [](Tables& t) { t.last[2] = 17; }},
          {ALM_WORKLOAD_INVALID, "workload.last_page_len[1]",
           "request 1: wanted 0 for a request without pages, given 3",
           [](Tables& t) { t.last[1] = 3; }},
          {ALM_PLAN_BOUND, "workload.qo_indptr",
           "needed 5, available 4; request 4 is the first without room",
           [](Tables& t) {
             t.qo = {0, 1, 2, 3, 4, 5};
             t.kv = {0, 1, 2, 3, 3, 3};
             t.last = {1, 1, 1, 0, 0};
           }},
          {ALM_PLAN_BOUND, "workload.qo_indptr",
           "needed 9, available 8; request 1 is the first without room",
           [](Tables& t) {
             t.qo = {0, 8, 9, 9};
           }},
      });
}

TEST_CASE("lists of blocks and slots that contradict themselves") {
  // Blocks of 2 x 4: requests of 3 and 1 query tokens, 10 and 4 keys.
  const Tables lists{
      .qo = {0, 3, 4}, .kv = {0, 10, 14}, .block_indptr = {0, 2, 3, 4}, .blocks = {2, 0, 1, 0}};
  check_rows(
      R"({"kv": "bsr", "block": [2, 4]})", lists,
      {
          {ALM_WORKLOAD_INVALID, "workload.block_indices[0]",
           "request 0: wanted a block from 0 to 2, given 3", [](Tables& t) { t.blocks[0] = 3; }},
          {ALM_WORKLOAD_INVALID, "workload.block_indices[3]",
           "request 1: wanted a block from 0 to 0, given -1", [](Tables& t) { t.blocks[3] = -1; }},
          {ALM_WORKLOAD_INVALID, "workload.block_indices[1]",
           "request 0: wanted each block once in a row, given 2 again",
           [](Tables& t) { t.blocks[1] = 2; }},
          {ALM_WORKLOAD_INVALID, "workload.block_indptr[2]",
           "row of blocks 1: wanted at least 2, given 1", [](Tables& t) { t.block_indptr[2] = 1; }},
          {ALM_WORKLOAD_INVALID, "workload.block_indptr[3]", "request 1: wanted at most 1 blocks",
           [](Tables& t) {
             t.block_indptr[3] = 5;
             t.blocks.push_back(1);
           }},
          {ALM_WORKLOAD_INVALID, "workload.block_indptr", "wanted 4 entries, given 3",
           [](Tables& t) { t.block_indptr.pop_back(); }},
          {ALM_WORKLOAD_INVALID, "workload.kv_indptr[2]", "request 1: wanted at least 10, given 9",
           [](Tables& t) { t.kv[2] = 9; }},
      });
  const Tables slots{.qo = {0, 1, 2}, .kv = {0, 4, 6}, .start = {0, 3}, .capacity = 5};
  check_rows(R"({"kv": "padded"})", slots,
             {
                 {ALM_WORKLOAD_INVALID, "workload.kv_start[1]",
                  "request 1: wanted start + length up to the capacity 5, given 4 + 2",
                  [](Tables& t) { t.start[1] = 4; }},
                 {ALM_WORKLOAD_INVALID, "workload.kv_start[0]",
                  "request 0: wanted 0 or more, given -1", [](Tables& t) { t.start[0] = -1; }},
                 {ALM_WORKLOAD_INVALID, "workload.kv_start", "wanted 2 entries, given 1",
                  [](Tables& t) { t.start.pop_back(); }},
             });
}

}  // namespace
