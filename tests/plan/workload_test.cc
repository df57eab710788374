// SPDX-License-Identifier: Apache-2.0
#include "plan/workload.h"

#include <catch2/catch.hpp>
#include <limits>

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

TEST_CASE("KV tokens follow from pages and the last page's length") {
  Batch batch;
  batch.add_paged(1, 300, 256).add_paged(1, 0, 256).add_paged(1, 256, 256).add_paged(1, 1, 256);
  CHECK(batch.kv_indptr == std::vector<std::int32_t>{0, 2, 2, 3, 4});
  CHECK(batch.last_page_len == std::vector<std::int32_t>{44, 0, 256, 1});
  const Spec spec = test::paged_spec(256);
  REQUIRE(check_workload(spec, batch.view()).ok());
  const std::int64_t wanted[] = {300, 0, 256, 1};
  for (int r = 0; r < 4; ++r) CHECK(kv_len(batch.view(), spec.layout, r) == wanted[r]);
}

TEST_CASE("arrays of the wrong length, order or start name the array, the index and the values") {
  const Spec spec = test::ragged_spec();
  Batch batch;
  batch.add(1, 2).add(1, 3);
  REQUIRE(check_workload(spec, batch.view()).ok());

  Batch short_kv = batch;
  short_kv.kv_indptr.pop_back();
  check_refused(spec, short_kv.view(), "workload.kv_indptr", "wanted 3 entries, given 2");
  Batch late = batch;
  late.kv_indptr = {1, 2, 3};
  check_refused(spec, late.view(), "workload.kv_indptr[0]", "wanted 0, given 1");
  Batch decreasing = batch;
  decreasing.qo_indptr = {0, 2, 1};
  check_refused(spec, decreasing.view(), "workload.qo_indptr[2]", "wanted at least 2, given 1");
  Batch wide = batch;  // the bytes of int64 {0, 1, 2} read as int32
  wide.kv_indptr = {0, 0, 1, 0, 2, 0};
  check_refused(spec, wide.view(), "workload.kv_indptr", "wanted 3 entries, given 6");
  check_refused(spec, Workload{.q_heads = 1, .kv_heads = 1}, "workload.qo_indptr", "given 0");
}

TEST_CASE("last_page_len is within the page, and 0 exactly without pages") {
  const Spec spec = test::paged_spec(16);
  Batch batch;
  batch.add_paged(1, 17, 16).add_paged(1, 0, 16);
  REQUIRE(check_workload(spec, batch.view()).ok());
  Batch full = batch;
  full.last_page_len = {17, 0};
  check_refused(spec, full.view(), "workload.last_page_len[0]",
                "wanted 1 to page_size 16, given 17");
  full.last_page_len = {0, 0};
  check_refused(spec, full.view(), "workload.last_page_len[0]", "given 0");
  full.last_page_len = {1, 1};
  check_refused(spec, full.view(), "workload.last_page_len[1]", "without pages, given 1");
  full.last_page_len = {1};
  check_refused(spec, full.view(), "workload.last_page_len", "wanted 2 entries, given 1");
}

TEST_CASE("fields that the layout does not use are refused, never ignored") {
  const Spec spec = test::ragged_spec();
  Batch batch;
  batch.add(1, 2);
  Batch extra = batch;
  extra.last_page_len = {1};
  check_refused(spec, extra.view(), "workload.last_page_len", "ragged");
  Workload pool = batch.view();
  pool.pool_pages = 3;
  check_refused(spec, pool, "workload.pool_pages", "ragged");
}

TEST_CASE("heads are KV heads times the group") {
  Batch batch;
  batch.add(1, 2);
  Workload workload = batch.view();
  workload.q_heads = 6;
  workload.kv_heads = 2;
  check_refused(test::ragged_spec(4), workload, "workload.heads", "given q_heads 6 and kv_heads 2");
  workload.q_heads = 0;
  workload.kv_heads = 0;
  check_refused(test::ragged_spec(4), workload, "workload.heads", "kv_heads of 1 or more");
}

TEST_CASE("scalar params are all given, known, once, and in the range of their type") {
  Spec spec = test::ragged_spec();
  spec.variant.params = {{"cap", ParamType::kF32},
                         {"slopes", ParamType::kPtrF32},
                         {"shift", ParamType::kI32},
                         {"seed", ParamType::kU32}};
  Batch batch;
  batch.add(1, 2);
  const auto with = [&batch](std::vector<ScalarParam> scalars) {
    Workload workload = batch.view();
    workload.scalars = std::move(scalars);
    return workload;
  };
  CHECK(check_workload(spec, with({{"seed", 4294967295.0}, {"cap", 30}, {"shift", -3}})).ok());
  check_refused(spec, with({{"seed", 1}, {"shift", -3}}), "workload.params.cap", "given none");
  check_refused(spec, with({{"seed", 1}, {"cap", 1}, {"shift", 1}, {"shft", 1}}),
                "workload.params.shft", "no scalar");
  check_refused(spec, with({{"seed", 1}, {"cap", 1}, {"shift", 1}, {"slopes", 1}}),
                "workload.params.slopes", "no scalar");
  check_refused(spec, with({{"seed", 1}, {"cap", 1}, {"cap", 1}, {"shift", 1}}),
                "workload.params.cap", "several");
  check_refused(spec, with({{"seed", -1}, {"cap", 1}, {"shift", 1}}), "workload.params.seed",
                "u32");
  check_refused(spec, with({{"seed", 1}, {"cap", 1}, {"shift", 0.5}}), "workload.params.shift",
                "i32");
  check_refused(spec, with({{"seed", 1}, {"cap", 1}, {"shift", std::nan("")}}),
                "workload.params.shift", "i32");
  check_refused(spec, with({{"seed", 1}, {"cap", 1e39}, {"shift", 1}}), "workload.params.cap",
                "f32");
}

TEST_CASE("the window is given exactly when the spec leaves it to the run") {
  Batch batch;
  batch.add(1, 2);
  Spec spec = test::ragged_spec();
  Workload workload = batch.view();
  workload.window_left = 3;
  check_refused(spec, workload, "workload.window_left", "given 3");
  spec.variant.mask.window_left = std::nullopt;
  CHECK(check_workload(spec, workload).ok());
  workload.window_left = -2;
  check_refused(spec, workload, "workload.window_left", "given -2");
  workload.window_left = std::nullopt;
  check_refused(spec, workload, "workload.window_left", "given none");
}

TEST_CASE("a scale that is not finite and above 0 in f32 is refused") {
  Batch batch;
  batch.add(1, 2);
  Workload workload = batch.view();
  workload.scale = 1e-9f;
  CHECK(check_workload(test::ragged_spec(), workload).ok());
  const std::pair<double, const char*> refused[] = {
      {std::numeric_limits<double>::infinity(), "given inf"},
      {std::nan(""), "given nan"},
      {-0.125, "given -0.125"},
      {0, "given 0"},
      {1e-60, "given 0"},
  };
  for (const auto& [scale, cause] : refused) {
    workload.scale = static_cast<float>(scale);
    check_refused(test::ragged_spec(), workload, "workload.scale", cause);
  }
}

TEST_CASE("lengths whose products leave int32 are refused") {
  Batch rows;
  rows.add(1 << 29, 1);
  check_refused(
      test::ragged_spec(8),
      [&] {
        Workload workload = rows.view();
        workload.q_heads = 8;
        return workload;
      }(),
      "workload.qo_indptr[1]", "given 4294967296");
  Batch tokens;  // 2^27 pages of 128 tokens
  tokens.add(1, 1 << 27);
  tokens.last_page_len = {128};
  check_refused(test::paged_spec(128), tokens.view(), "workload.kv_indptr[1]", "given 17179869184");
}

}  // namespace
}  // namespace attnloom
