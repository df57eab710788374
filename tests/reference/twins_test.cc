// SPDX-License-Identifier: Apache-2.0
#include "reference/twins.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "tests/reference/problems.h"

namespace attnloom::reference {
namespace {

Output solve_with(std::string_view variant, const ParamValues& params, Problem problem) {
  const auto twin = make_twin(variant, params, {problem.q_heads, problem.dim_qk});
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

// One query and key head of dimension 4, two keys, values 0 and 1.
Problem four_wide(const std::vector<double>& q, const std::vector<double>& k) {
  Problem p = zero_logits({{1, 2}});
  p.dim_qk = 4;
  p.q = q;
  p.k = k;
  return p;
}

TEST_CASE("rope: pairs, direction and positions from the first key") {
  // The query stands at 1, the keys at 0 and 1; a quarter turn a position for pair 0 only.
  const ParamValues params{.arrays = {{"inv_freq", {std::acos(-1.0) / 2, 0.0}}}};
  // neox pairs (0, 2): the query (1, 0, 0, 0) becomes (0, 0, 1, 0).
  const Problem halves = four_wide({1, 0, 0, 0}, {0, 0, 2, 0, /**/ 0, 0, 3, 0});
  // Key 0 stays at (0, 0, 2, 0): logit 2; key 1 becomes (-3, 0, 0, 0): logit 0.
  check_near(solve_with("rope_neox", params, halves).lse, {std::log(std::exp(2.0) + 1)}, 1e-6);
  // Interleaved pairs (0, 1) of the same: neither turns into the other, logits 0 and 0.
  check_near(solve_with("rope_interleaved", params, halves).lse, {std::log(2.0)}, 1e-6);
  const Problem pairs = four_wide({1, 0, 0, 0}, {0, 2, 0, 0, /**/ 0, 3, 0, 0});
  check_near(solve_with("rope_interleaved", params, pairs).lse, {std::log(std::exp(2.0) + 1)},
             1e-6);
}

TEST_CASE("what a row functor leaves is rounded to the input's dtype") {
  Problem p = scored({1.0}, {1.0});
  p.hooks.query_transform = [](std::span<double> row, const RowPlace&) { row[0] = 1.00390625; };
  p.hooks.key_transform = [](std::span<double> row, const RowPlace&) { row[0] = 1.01171875; };
  check_near(solve(p).lse, {1.0 * 1.015625}, 0);  // bf16: 1 + 2^-8 to even, 1 + 3 * 2^-8 up
  p.dtype = DType::kF16;
  check_near(solve(p).lse, {1.00390625 * 1.01171875}, 1e-12);
}

TEST_CASE("streaming_llm_rope keeps the first keys and the last") {
  Problem p = zero_logits({{1, 8}});
  p.dim_qk = 2;
  p.q.resize(2, 0.0);
  p.k.resize(16, 0.0);
  const Output out =
      solve_with("streaming_llm_rope",
                 {.scalars = {{"sinks", 2}, {"window", 3}}, .arrays = {{"inv_freq", {1.0}}}}, p);
  check_near(out.o, {(0 + 1 + 5 + 6 + 7) / 5.0});
}

TEST_CASE("qk_norm: root of the mean square, eps inside, a weight an element") {
  const Problem p = four_wide({2, 2, 2, 2}, {3, 3, 3, 3, /**/ 0, 0, 0, 0});
  const ParamValues params{.scalars = {{"eps", 12.0}},
                           .arrays = {{"q_weight", {1, 1, 1, 1}}, {"k_weight", {1, 0.5, 0, 0}}}};
  // Query 2 / sqrt(4 + 12) everywhere, key 0 3 / sqrt(9 + 12) times its weight; key 1 stays 0.
  check_near(solve_with("qk_norm", params, p).lse,
             {std::log(std::exp(0.5 * 1.5 * 3 / std::sqrt(21.0)) + 1)}, 4e-3);
}

TEST_CASE("bit_mask: bits by row, the lowest first, requests on bytes of their own") {
  Problem p = zero_logits({{1, 3}, {2, 5}});
  // Request 0: keys 0 and 2. Request 1, ten bits: key 4, then keys 0 and 1.
  const ParamValues params{
      .arrays = {{"mask_bits", {0b101, 0b01110000, 0b0}}, {"mask_begin", {0, 1}}}};
  check_near(solve_with("bit_mask", params, p).o, {1.0, 4.0, 0.5});
}

TEST_CASE("tree_mask: what came before the tree, and the ancestors") {
  Problem p = zero_logits({{3, 5}});
  const ParamValues params{.arrays = {{"ancestors", {0b001, 0b011, 0b101}}, {"tree_begin", {0}}}};
  check_near(solve_with("tree_mask", params, p).o,
             {(0 + 1 + 2) / 3.0, (0 + 1 + 2 + 3) / 4.0, (0 + 1 + 2 + 4) / 4.0});
}

TEST_CASE("output_gate: the sigmoid of the head's gate") {
  Problem p = zero_logits({{1, 3}}, 2, 1);
  check_near(solve_with("output_gate", {.arrays = {{"gate", {0.0, std::log(3.0)}}}}, p).o,
             {0.5, 0.75});
}

TEST_CASE("Missing params and unknown variants are refused by name") {
  CHECK(make_twin("soft_cap", {}, {.q_heads = 1}).status().path == "params.cap");
  CHECK(make_twin("soft_cap", {}, {.q_heads = 1}).status().code == Code::kWorkloadInvalid);
  CHECK(make_twin("alibi", {}, {.q_heads = 1}).status().path == "params.slopes");
  CHECK(make_twin("alibi", {.arrays = {{"slopes", {1.0}}}}, {.q_heads = 2}).status().path ==
        "params.slopes");
  CHECK(make_twin("sigmoid", {}, {.q_heads = 1}).status().path == "params.bias");
  CHECK(make_twin("mine", {}, {.q_heads = 1}).status().code == Code::kSpecUnsupported);
  CHECK_FALSE(has_twin("mine"));
  CHECK(twin_names().size() == 11);
  for (const std::string_view name : twin_names()) CHECK(has_twin(name));
}

}  // namespace
}  // namespace attnloom::reference
