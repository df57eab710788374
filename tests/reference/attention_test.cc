// SPDX-License-Identifier: Apache-2.0
#include "reference/attention.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "tests/reference/problems.h"

namespace attnloom::reference {
namespace {

TEST_CASE("B03: the softmax has base e") {
  const Output out = solve(scored({1, 0}, {1, 0}));
  check_near(out.o, {0.7310586});
  check_near(out.lse, {1.3132617});
}

TEST_CASE("B01: a masked key weighs nothing beside any finite logit") {
  Problem p{.q_heads = 1, .kv_heads = 1, .dim_qk = 64, .dim_vo = 1, .scale = 0.125};
  p.requests = {{1, 2, {1, 0}}};
  p.q.assign(64, -30.0);
  p.k.assign(64, 30.0);
  p.k.resize(128, 0.0);
  p.v = {1, 100};
  const Output out = solve(p);
  CHECK(out.o[0] == 1.0);
  CHECK(out.lse[0] == -7200.0);
}

TEST_CASE("B17: a request without keys in a batch") {
  Problem p = zero_logits({{1, 2}, {1, 0}, {1, 1}});
  p.v = {1, 3, 1};
  for (const bool causal : {false, true}) {
    p.causal = causal;
    const Output out = solve(p);
    CHECK(out.o == std::vector<double>{2, 0, 1});
    check_near(out.lse, {0.6931472, -kInfinity, 0});
    CHECK_FALSE(std::signbit(out.o[1]));
  }
}

TEST_CASE("B19: a request without queries in a batch, grouped heads") {
  const Output out = solve(zero_logits({{1, 3}, {0, 0}, {1, 5}}, 9, 3));
  REQUIRE(out.o.size() == 18);
  for (int head = 0; head < 9; ++head) {
    CHECK(out.o[head] == Approx(1.0));
    CHECK(out.o[9 + head] == Approx(2.0));
    CHECK(out.lse[head] == Approx(1.0986123));
    CHECK(out.lse[9 + head] == Approx(1.6094379));
  }
  // Queries without keys, and keys without queries, at once.
  check_near(solve(zero_logits({{2, 0}, {0, 4}, {1, 1}})).o, {0, 0, 0});
}

TEST_CASE("B21, B31: the mean of many keys") {
  const Output out = solve(zero_logits({{1, 300}, {1, 5}}));
  check_near(out.o, {149.5, 2.0});
  check_near(out.lse, {5.7037825, 1.6094379});
}

TEST_CASE("Every query head reads its own KV head") {
  Problem p{.q_heads = 4, .kv_heads = 2, .dim_qk = 2, .dim_vo = 3};
  p.requests = {{1, 1, {}}};
  p.q = {1, 0, 0, 1, 2, 0, 0, 2};
  p.k = {5, 6, 7, 8};
  p.v = {1, 2, 3, 4, 5, 6};
  p.scale = 0.5;
  const Output out = solve(p);
  CHECK(out.o == std::vector<double>{1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6});
  CHECK(out.lse == std::vector<double>{2.5, 3, 7, 8});
}

TEST_CASE("The order is scale, transform, mask, softmax") {
  Problem p = scored({1, 2, 3}, {10, 20, 30});
  p.scale = 2.0;
  std::vector<double> seen;
  p.hooks.logits_transform = [&](double logit, const LogitPlace&) {
    seen.push_back(logit);
    return logit == 4.0 ? 1e9 : 0.0;  // the second key: hidden below, however large
  };
  p.hooks.logits_mask = [](const LogitPlace& at) { return at.kv_pos != 1; };
  const Output out = solve(p);
  CHECK(seen == std::vector<double>{2, 6});
  check_near(out.o, {20});
  check_near(out.lse, {std::log(2.0)});
  CHECK(out.largest_logit == 0.0);  // of the kept ones
  CHECK(solve(scored({-3, 2}, {1, 1})).largest_logit == 3.0);
}

TEST_CASE("Functors see where they are") {
  Problem p = zero_logits({{1, 1}, {2, 3}}, 4, 2);
  LogitPlace last;
  OutputPlace last_row;
  p.hooks.logits_transform = [&](double logit, const LogitPlace& at) {
    last = at;
    return logit;
  };
  p.hooks.output_transform = [&](double o, double lse, int dim, const OutputPlace& at) {
    last_row = at;
    return o + lse + dim;
  };
  const Output out = solve(p);
  CHECK(last.batch == 1);
  CHECK(last.q_pos == 2);
  CHECK(last.kv_pos == 2);
  CHECK(last.q_head == 3);
  CHECK(last.kv_head == 1);
  CHECK(last.q_len == 2);
  CHECK(last.kv_len == 3);
  CHECK(last_row.q_pos == 2);
  CHECK(last_row.q_head == 3);
  CHECK(last_row.kv_head == 1);
  check_near({out.o[0], out.o[4]}, {0.0, 1 + std::log(3.0)});
}

TEST_CASE("Without softmax the logits are the weights") {
  Problem p = scored({2, -1, 5}, {10, 20, 30});
  p.softmax = false;
  p.hooks.logits_mask = [](const LogitPlace& at) { return at.kv_pos != 2; };
  const Output out = solve(p);
  CHECK(out.o == std::vector<double>{0.0 + 2 * 10 - 20});
  CHECK(out.lse.empty());
  p.requests[0].custom_mask = {0, 0, 0};
  CHECK(solve(p).o == std::vector<double>{0});
}

TEST_CASE("A sink is a logit without a value") {
  Problem p = scored({0}, {4});
  p.sink = {std::log(3.0)};
  check_near(solve(p).o, {1.0});
  check_near(solve(p).lse, {std::log(4.0)});
  p.requests[0].custom_mask = {0};
  check_near(solve(p).o, {0.0});
  check_near(solve(p).lse, {std::log(3.0)});
  p.sink = {-kInfinity};
  check_near(solve(p).lse, {-kInfinity});
  p.sink = {5000.0};  // no overflow
  check_near(solve(p).lse, {5000.0});
}

TEST_CASE("Special logits") {
  check_near(solve(scored({-kInfinity, 0}, {7, 3})).o, {3});
  CHECK(solve(scored({-kInfinity, -kInfinity}, {7, 3})).o == std::vector<double>{0});
  CHECK(solve(scored({-kInfinity}, {7})).lse == std::vector<double>{-kInfinity});
  CHECK(std::isnan(solve(scored({kNan, -kInfinity}, {7, 3})).lse[0]));
  CHECK(std::isnan(solve(scored({0, kNan}, {7, 3})).o[0]));
  check_near(solve(scored({1000, 999}, {1, 0})).o, {0.7310586});
}

TEST_CASE("A hidden key's NaN never shows, a kept one's does") {
  Problem p = scored({0, kNan}, {7, kNan});
  CHECK(std::isnan(solve(p).o[0]));
  p.requests[0].custom_mask = {1, 0};
  CHECK(solve(p).o == std::vector<double>{7});
  CHECK(solve(p).lse == std::vector<double>{0});
}

TEST_CASE("Tensors that do not fit are refused by name") {
  const auto refused = [](auto change) {
    Problem p = zero_logits({{2, 3}}, 2, 1);
    change(p);
    const auto out = attention(p);
    REQUIRE_FALSE(out.ok());
    CHECK(out.status().code == Code::kArgumentInvalid);
    return out.status().path;
  };
  CHECK(refused([](Problem& p) { p.q.pop_back(); }) == "q");
  CHECK(refused([](Problem& p) { p.k.push_back(0); }) == "k");
  CHECK(refused([](Problem& p) { p.v.clear(); }) == "v");
  CHECK(refused([](Problem& p) { p.q_heads = 3, p.kv_heads = 2; }) == "q_heads");
  CHECK(refused([](Problem& p) { p.sink = {1}; }) == "sink");
  CHECK(refused([](Problem& p) { p.sink = {1, 1}, p.softmax = false; }) == "sink");
  CHECK(refused([](Problem& p) { p.requests[0].custom_mask = {1}; }) == "requests[0].custom_mask");
  CHECK(refused([](Problem& p) { p.requests[0].kv_len = -1; }) == "requests[0]");
}

}  // namespace
}  // namespace attnloom::reference
