// SPDX-License-Identifier: Apache-2.0
#include "tools/case/judge.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "tests/case/cases.h"

namespace attnloom {
namespace {

CaseReference solved(const CaseFile& file) {
  const auto wanted = solve_case(file);
  INFO(wanted.status().to_string());
  REQUIRE(wanted.ok());
  return *wanted;
}

void check_case(const Json& value, const Json& o, const Json& lse) {
  Json with_expect = value;
  with_expect["expect"] = Json{{"o", o}, {"lse", lse}, {"atol", 1e-6}};
  const CaseFile file = parsed(with_expect);
  const CaseReference wanted = solved(file);
  const auto expected = compare_with_expect(file, wanted.output);
  REQUIRE(expected.has_value());
  INFO(expected->failure);
  CHECK(expected->pass);
  CHECK(compare_with_reference(file, wanted, wanted.output).pass);
}

TEST_CASE("The example of the format holds") {
  const CaseFile file = parsed(example_case());
  const CaseReference wanted = solved(file);
  CHECK(compare_with_expect(file, wanted.output)->pass);
  reference::Output wrong = wanted.output;
  wrong.o[8] += 0.01;
  const auto expected = compare_with_expect(file, wrong);
  CHECK_FALSE(expected->pass);
  CHECK(expected->o.token == 1);
  CHECK(expected->o.head == 0);
  CHECK(expected->o.dim == 0);
}

TEST_CASE("B17 as a case: lengths 2, 0, 1, paged and ragged") {
  for (Json value : {paged_case({1, 1, 1}, {2, 0, 1}), ragged_case({1, 1, 1}, {2, 0, 1})}) {
    value["inputs"]["v"] = {1, 3, 1};
    check_case(value, {2, 0, 1}, {0.6931472, "-inf", 0});
  }
}

TEST_CASE("B31 as a case: NaN in unused slots") {
  Json value = paged_case({1}, {5});
  value["inputs"]["v"] = {0, 1, 2, 3, 4};
  check_case(value, {2}, {1.6094379});
}

TEST_CASE("B13 as a case: custom masks") {
  Json value = ragged_case({1, 1}, {3, 5});
  value["spec"]["variant"] = Json::parse(R"({"mask": {"custom": true}})");
  value["workload"]["mask"] = Json::parse(R"({"custom": [[[1, 0, 1]], [[1, 1, 0, 1, 1]]]})");
  value["inputs"]["v"] = {0, 1, 2, 0, 1, 2, 3, 4};
  check_case(value, {1, 2}, {std::log(2.0), std::log(4.0)});
}

TEST_CASE("B11 as a case: a window given at run time") {
  Json value = ragged_case({1}, {4});
  value["spec"]["variant"] = Json::parse(R"({"mask": {"causal": true, "window_left": "runtime"}})");
  value["workload"]["window_left"] = 1;
  value["inputs"]["v"] = {0, 1, 2, 3};
  check_case(value, {2.5}, {std::log(2.0)});
}

TEST_CASE("B07 as a case: alibi, its slopes a param") {
  Json value = ragged_case({1}, {3});
  value["spec"]["variant"] = Json::parse(R"({"name": "alibi",
      "params": [{"name": "slopes", "type": "ptr<f32>"}],
      "logits_transform": "return logits - slopes[q_head] * float(q_pos - kv_pos);"})");
  value["inputs"]["params"] =
      Json::parse(R"({"slopes": {"dtype": "f32", "shape": [1], "data": [0.5]}})");
  value["inputs"]["v"] = {1, 2, 4};
  check_case(value, {2.8266371}, {0.6802697});
}

TEST_CASE("A sink") {
  Json value = ragged_case({1}, {1});
  value["spec"]["variant"] =
      Json::parse(R"({"sink": "s", "params": [{"name": "s", "type": "ptr<f32>"}]})");
  value["inputs"]["params"] =
      Json{{"s", Json{{"dtype", "f32"}, {"shape", {1}}, {"data", {std::log(3.0)}}}}};
  value["inputs"]["v"] = 4;
  check_case(value, {1}, {std::log(4.0)});
  value["inputs"]["params"]["s"]["shape"] = {2};
  CHECK(refused(value).path == "$.inputs.params.s.shape");
}

TEST_CASE("The scale is 1/sqrt(d), or the one given") {
  Json value = ragged_case({1}, {1});
  value["spec"]["head_dim"]["qk"] = 4;
  value["inputs"]["q"] = 1;
  value["inputs"]["k"] = 1;
  check_case(value, {0}, {2.0});
  value["workload"]["scale"] = 3;
  check_case(value, {0}, {12.0});
}

TEST_CASE("A page read twice is one value for both") {
  Json value = paged_case({1, 1}, {2, 2});
  value["workload"]["pages"] = Json::parse(
      R"({"indptr": [0, 1, 2], "indices": [0, 0], "last_page_len": [2, 2], "pool": 1})");
  value["inputs"]["v"] = {1, 3, 100, 100};
  check_case(value, {2, 2}, {std::log(2.0), std::log(2.0)});
}

TEST_CASE("The tolerance is that of the output, wider for an approximate functor") {
  const CaseReference plain = solved(parsed(paged_case({1}, {2})));
  CHECK(plain.tolerance.row == 2e-3);
  Json value = example_case();
  value["inputs"]["q"] = 1;
  const CaseReference capped = solved(parsed(value));
  CHECK(capped.output.largest_logit > 0);
  CHECK(capped.tolerance.row == Approx(1e-2 + 1e-3 * capped.output.largest_logit));
}

TEST_CASE("Without a twin there is no judge here") {
  const auto code_of = [](const Json& variant) {
    Json value = ragged_case({1}, {1});
    value["spec"]["variant"] = variant;
    if (variant.contains("params")) value["inputs"]["params"] = Json{{"cap", 30}};
    return solve_case(parsed(value)).status().code;
  };
  const Json params = Json::parse(R"([{"name": "cap", "type": "f32"}])");
  CHECK(code_of(Json{{"name", "mine"}, {"logits_transform", "return logits;"}}) ==
        Code::kSpecUnsupported);
  CHECK(code_of(Json{{"name", "plain"}, {"logits_transform", "return logits + 1;"}}) ==
        Code::kSpecUnsupported);
  CHECK(code_of(Json{{"name", "soft_cap"},
                     {"params", params},
                     {"logits_transform", "return cap * loom::tanh(logits / cap);"},
                     {"logits_mask", "return kv_pos > 1;"}}) == Code::kSpecUnsupported);
  CHECK(code_of(Json{{"name", "soft_cap"},
                     {"softmax", false},
                     {"params", params},
                     {"logits_transform", "return cap * loom::tanh(logits / cap);"}}) ==
        Code::kSpecUnsupported);
  CHECK(code_of(Json{{"name", "without_functors"}}) == Code::kOk);
}

}  // namespace
}  // namespace attnloom
