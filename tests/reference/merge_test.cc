// SPDX-License-Identifier: Apache-2.0
#include "reference/merge.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "tests/reference/problems.h"

namespace attnloom::reference {
namespace {

State state_of(const std::vector<double>& scores, const std::vector<double>& values) {
  const Output out = solve(scored(scores, values));
  return {out.o, out.lse[0]};
}

State merged(const State& a, const State& b) {
  const auto state = merge(a, b);
  INFO(state.status().to_string());
  REQUIRE(state.ok());
  return *state;
}

TEST_CASE("The worked example: two chunks of two keys") {
  const State a = state_of({1, 2}, {10, 20});
  const State b = state_of({3, 4}, {30, 40});
  CHECK(a.o[0] == Approx(17.31).margin(0.005));
  CHECK(a.lse == Approx(2.313).margin(0.0005));
  CHECK(b.o[0] == Approx(37.31).margin(0.005));
  CHECK(b.lse == Approx(4.313).margin(0.0005));
  const State ab = merged(a, b);
  // exp(1..4) weigh 10..40, to more digits than the text gives.
  const double sum = std::exp(1.0) + std::exp(2.0) + std::exp(3.0) + std::exp(4.0);
  const double exact =
      (10 * std::exp(1.0) + 20 * std::exp(2.0) + 30 * std::exp(3.0) + 40 * std::exp(4.0)) / sum;
  CHECK(ab.o[0] == Approx(34.93).margin(0.005));
  check_near(ab.o, {exact}, 1e-12);
  check_near({ab.lse}, {std::log(sum)}, 1e-12);
}

TEST_CASE("B25: merging empty states stays empty") {
  const State empty{{0.0}, -kInfinity};
  CHECK(merged(empty, empty).o == std::vector<double>{0});
  CHECK(merged(empty, empty).lse == -kInfinity);
  const std::vector<State> five(5, empty);
  for (const std::size_t count : {0u, 5u}) {
    const auto state = merge_all(std::span(five).first(count), 1);
    REQUIRE(state.ok());
    CHECK(state->o == std::vector<double>{0});
    CHECK(state->lse == -kInfinity);
  }
}

TEST_CASE("B27: an empty side changes nothing, whatever lies in it; +inf is refused") {
  const State a{{5.0}, 0.0};
  for (const double garbage : {0.0, 7.0, kNan, kInfinity}) {
    const State empty{{garbage}, -kInfinity};
    CHECK(merged(a, empty).o == a.o);
    CHECK(merged(a, empty).lse == 0.0);
    CHECK(merged(empty, a).o == a.o);
    CHECK(merged(empty, empty).o == std::vector<double>{0});
  }
  const auto refused = merge(a, State{{0.0}, kInfinity});
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.status().path == "states[1].lse");
  CHECK(refused.status().cause == "wanted a finite number or -inf, given inf");
  CHECK(merge(State{{0.0}, kNan}, a).status().path == "states[0].lse");
  CHECK(merge(a, State{{0.0, 1.0}, 0.0}).status().path == "states[1].o");
}

TEST_CASE("B29: a quarter and three quarters") {
  const State state = merged({{0.0}, 0.0}, {{4.0}, std::log(3.0)});
  check_near(state.o, {3.0}, 1e-12);
  check_near({state.lse}, {1.3862944});
}

TEST_CASE("Far scores neither overflow nor vanish") {
  const State state = merged({{1.0}, 7200.0}, {{3.0}, 7200.0});
  check_near(state.o, {2.0}, 1e-12);
  check_near({state.lse}, {7200.0 + std::log(2.0)});
  check_near(merged({{1.0}, -7200.0}, {{3.0}, 0.0}).o, {3.0});
}

TEST_CASE("Any cut of the keys gives the whole") {
  const std::vector<double> scores = {0.3, -2.0, 5.0, 1.0, 4.9, -7.0};
  const std::vector<double> values = {1, 2, 3, 4, 5, 6};
  const State whole = state_of(scores, values);
  for (std::size_t cut = 0; cut <= scores.size(); ++cut) {
    const auto at = static_cast<std::ptrdiff_t>(cut);
    const State both = merged(
        state_of({scores.begin(), scores.begin() + at}, {values.begin(), values.begin() + at}),
        state_of({scores.begin() + at, scores.end()}, {values.begin() + at, values.end()}));
    check_near(both.o, whole.o, 1e-12);
    check_near({both.lse}, {whole.lse}, 1e-12);
  }
}

}  // namespace
}  // namespace attnloom::reference
