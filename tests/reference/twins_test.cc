// SPDX-License-Identifier: Apache-2.0
#include "reference/twins.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "tests/reference/problems.h"

namespace attnloom::reference {
namespace {

Output solve_with(std::string_view variant, const ParamValues& params, Problem problem) {
  const auto twin = make_twin(variant, params, problem.q_heads);
  INFO(twin.status().to_string());
  REQUIRE(twin.ok());
  problem.hooks = twin->hooks;
  problem.softmax = twin->softmax;
  return solve(problem);
}

TEST_CASE("plain changes nothing") {
  check_near(solve_with("plain", {}, scored({1, 0}, {1, 0})).o, {0.7310586});
}

TEST_CASE("soft_cap: cap tanh(s / cap)") {
  const Output out = solve_with("soft_cap", {.scalars = {{"cap", 2.0}}}, scored({4, 0}, {1, 0}));
  // 2 tanh 2 = 1.9280552
  check_near(out.o, {1 / (1 + std::exp(-1.9280552))});
  check_near(out.lse, {std::log(std::exp(1.9280552) + 1)});
}

TEST_CASE("B07: alibi, sign and distance") {
  Problem p = zero_logits({{1, 3}});
  p.v = {1, 2, 4};
  const Output out = solve_with("alibi", {.arrays = {{"slopes", {0.5}}}}, p);
  check_near(out.o, {2.8266371});
  check_near(out.lse, {0.6802697});
}

TEST_CASE("alibi: a slope a query head, positions counted from the end") {
  Problem p = zero_logits({{2, 3}}, 2, 1);
  p.causal = true;
  const Output out = solve_with("alibi", {.arrays = {{"slopes", {0.0, 1.0}}}}, p);
  const double e1 = std::exp(-1.0), e2 = std::exp(-2.0);
  check_near(out.o, {0.5, 1 / (1 + e1), 1.0, (2 + e1) / (1 + e1 + e2)});
}

TEST_CASE("sigmoid: no softmax, a bias inside") {
  const Output out = solve_with("sigmoid", {.scalars = {{"bias", -1.0}}}, scored({1, 3}, {10, 20}));
  check_near(out.o, {10 * 0.5 + 20 * 0.8807970779778823}, 1e-12);
  CHECK(out.lse.empty());
}

TEST_CASE("Missing params and unknown variants are refused by name") {
  CHECK(make_twin("soft_cap", {}, 1).status().path == "params.cap");
  CHECK(make_twin("soft_cap", {}, 1).status().code == Code::kWorkloadInvalid);
  CHECK(make_twin("alibi", {}, 1).status().path == "params.slopes");
  CHECK(make_twin("alibi", {.arrays = {{"slopes", {1.0}}}}, 2).status().path == "params.slopes");
  CHECK(make_twin("sigmoid", {}, 1).status().path == "params.bias");
  CHECK(make_twin("mine", {}, 1).status().code == Code::kSpecUnsupported);
  CHECK_FALSE(has_twin("mine"));
  CHECK(twin_names().size() == 4);
  for (const std::string_view name : twin_names()) CHECK(has_twin(name));
}

}  // namespace
}  // namespace attnloom::reference
