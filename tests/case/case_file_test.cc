// SPDX-License-Identifier: Apache-2.0
#include "tools/case/case_file.h"

#include <catch2/catch.hpp>

#include "tests/case/cases.h"

namespace attnloom {
namespace {

using Ints = std::vector<std::int32_t>;

TEST_CASE("The example of the format is read whole") {
  const CaseFile file = parsed(example_case());
  CHECK(file.spec.variant.name == "soft_cap");
  CHECK(file.q_heads == 4);
  CHECK(file.kv_heads == 1);
  CHECK(file.qo_indptr == Ints{0, 2});
  CHECK(file.kv_indptr == Ints{0, 1});
  CHECK(file.last_page_len == Ints{5});
  CHECK(file.page_indices == Ints{3});
  CHECK(file.pool_pages == 8);
  CHECK(file.scale == 1.0f);
  REQUIRE(file.scalars.size() == 1);
  CHECK(file.scalars[0].name == "cap");
  CHECK(file.scalars[0].value == 30.0);
  CHECK(file.q.values == std::vector<double>(2 * 4 * 4, 0.0));
  CHECK(file.v.values == std::vector<double>{0, 0, 1, 1, 2, 2, 3, 3, 4, 4});
  CHECK(file.v.bits[2] == 0x3F80);
  // The first elements of seed 1, from the formula, rounded to bf16.
  REQUIRE(file.k.values.size() == 20);
  CHECK(file.k.shape[0] == 5);
  REQUIRE(file.expect.has_value());
  CHECK(file.expect->o == std::vector<double>{1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5,  //
                                              2, 2, 2, 2, 2, 2, 2, 2});
  CHECK(file.expect->lse.size() == 8);
  CHECK(file.expect->lse[3] == 1.3862944);
  CHECK(file.expect->lse[4] == 1.6094379);
  CHECK(file.expect->atol == 0.001);
  CHECK(file.expect->rtol == 1e-6);
}

TEST_CASE("The workload is a view of the arrays") {
  const CaseFile file = parsed(example_case());
  const Workload workload = file.workload();
  CHECK(workload.batch() == 1);
  CHECK(workload.q_heads == 4);
  CHECK(workload.qo_indptr.data() == file.qo_indptr.data());
  CHECK(workload.page_indices.size() == 1);
  CHECK(workload.pool_pages == 8);
  CHECK(workload.scalars.size() == 1);
  CHECK_FALSE(workload.window_left.has_value());
}

TEST_CASE("Functors keep their line in the case file") {
  const auto file = parse_case(example_case().dump(2), "");
  REQUIRE(file.ok());
  const std::string text = example_case().dump(2);
  const auto at = text.find("logits_transform");
  const auto line =
      1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n');
  CHECK(file->field_lines.at("variant.logits_transform").json_line == line);
}

TEST_CASE("A ragged cache counts tokens and has no pages") {
  const CaseFile file = parsed(ragged_case({1, 0, 2}, {3, 2, 0}));
  CHECK(file.qo_indptr == Ints{0, 1, 1, 3});
  CHECK(file.kv_indptr == Ints{0, 3, 5, 5});
  CHECK(file.page_indices.empty());
  CHECK(file.workload().last_page_len.empty());
  CHECK(file.pool_pages == 0);
  CHECK_FALSE(file.scale.has_value());
  CHECK_FALSE(file.expect.has_value());
  CHECK(file.k_image.rank == 3);
}

TEST_CASE("An empty batch, and requests without anything") {
  CHECK(parsed(paged_case({}, {})).workload().batch() == 0);
  const CaseFile file = parsed(paged_case({0, 1}, {0, 0}));
  CHECK(file.kv_indptr == Ints{0, 0, 0});
  CHECK(file.last_page_len == Ints{0, 0});
  CHECK(parsed(ragged_case({1}, {0})).k_image.bytes.empty());
}

TEST_CASE("Window, order and masks") {
  Json value = ragged_case({2}, {3});
  value["spec"]["variant"] = Json::parse(R"({"mask": {"window_left": "runtime", "custom": true}})");
  value["workload"]["window_left"] = 7;
  value["workload"]["kv_order"] = "HND";
  value["workload"]["mask"] = Json::parse(R"({"custom": [[[1, 0, 1], [0, 0, 1]]]})");
  const CaseFile file = parsed(value);
  CHECK(file.window_left == 7);
  CHECK(file.heads_first);
  REQUIRE(file.custom_masks.size() == 1);
  CHECK(file.custom_masks[0] == std::vector<std::uint8_t>{1, 0, 1, 0, 0, 1});
}

}  // namespace
}  // namespace attnloom
