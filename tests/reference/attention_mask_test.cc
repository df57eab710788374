// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>
#include <cmath>

#include "tests/reference/problems.h"

namespace attnloom::reference {
namespace {

TEST_CASE("B09: causal is bottom-right") {
  Problem p = zero_logits({{2, 5}});
  p.causal = true;
  check_near(solve(p).o, {1.5, 2.0});
  check_near(solve(p).lse, {1.3862944, 1.6094379});
}

TEST_CASE("More queries than keys: the first rows have no key") {
  Problem p = zero_logits({{3, 1}});
  p.causal = true;
  CHECK(solve(p).o == std::vector<double>{0, 0, 0});
  check_near(solve(p).lse, {-kInfinity, -kInfinity, 0});
}

TEST_CASE("B11: window_left counts the keys before the query's own") {
  Problem p = zero_logits({{1, 4}});
  p.causal = true;
  const std::vector<std::pair<int, std::pair<double, double>>> cases = {
      {-1, {1.5, 1.3862944}}, {0, {3.0, 0.0}}, {1, {2.5, 0.6931472}}, {3, {1.5, 1.3862944}}};
  for (const auto& [window, want] : cases) {
    CAPTURE(window);
    p.window_left = window;
    check_near(solve(p).o, {want.first});
    check_near(solve(p).lse, {want.second});
  }
}

TEST_CASE("A window without causal hides only what lies before it") {
  Problem p = zero_logits({{2, 4}});
  p.window_left = 1;  // rows at 2 and 3 keep keys 1..3 and 2..3
  check_near(solve(p).o, {2.0, 2.5});
}

TEST_CASE("B13: custom masks of two requests") {
  Problem p = zero_logits({{1, 3}, {1, 5}});
  p.requests[0].custom_mask = {1, 0, 1};
  p.requests[1].custom_mask = {1, 1, 0, 1, 1};
  check_near(solve(p).o, {1.0, 2.0});
  check_near(solve(p).lse, {std::log(2.0), std::log(4.0)});
}

TEST_CASE("A custom mask is row-major over query and key, and joins causal") {
  Problem p = zero_logits({{2, 3}});
  p.requests[0].custom_mask = {1, 0, 1,   //
                               0, 0, 1};  //
  check_near(solve(p).o, {1.0, 2.0});
  p.causal = true;  // row 0 stands at 1
  check_near(solve(p).o, {0.0, 2.0});
}

TEST_CASE("B15: seven heads, the last token alone sees the last key") {
  Problem p = zero_logits({{3, 65}}, 7, 1);
  p.causal = true;
  p.v.assign(65, 0.0);
  p.v[64] = 65.0;
  const Output out = solve(p);
  for (int row = 0; row < 21; ++row) CHECK(out.o[row] == Approx(row < 14 ? 0.0 : 1.0));
}

TEST_CASE("B59: block sparse as a mask") {
  Problem p = zero_logits({{2, 512}});
  for (int j = 0; j < 512; ++j) p.v[j] = j < 64 ? 1.0 : 0.0;
  for (int i = 0; i < 2 * 512; ++i) p.requests[0].custom_mask.push_back(i % 512 < 64);
  check_near(solve(p).o, {1.0, 1.0});
  check_near(solve(p).lse, {4.1588831, 4.1588831});
}

TEST_CASE("B59: block sparse by its lists") {
  Problem p = zero_logits({{130, 512}});
  for (int j = 0; j < 512; ++j) p.v[j] = j < 64 ? 1.0 : 0.0;
  p.requests[0].blocks = Blocks{128, 64, {0, 1, 2}, {0, 7}};  // the last two queries see 448 to 511
  const Output out = solve(p);
  for (int i = 0; i < 130; ++i) {
    CHECK(out.o[i] == Approx(i < 128 ? 1.0 : 0.0));
    CHECK(out.lse[i] == Approx(4.1588831));
  }
}

TEST_CASE("blocks and the other masks both hide; a row without blocks sees nothing") {
  Problem p = zero_logits({{3, 5}});
  for (int j = 0; j < 5; ++j) p.v[j] = j;
  p.causal = true;
  p.requests[0].blocks = Blocks{2, 2, {0, 2, 2}, {2, 0}};  // keys 4 and 0, 1
  check_near(solve(p).o, {0.5, 0.5, 0.0});                 // the second query is at position 3
  p.requests[0].custom_mask = {0, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1};
  check_near(solve(p).o, {1.0, 0.0, 0.0});
}

TEST_CASE("lists of another shape are refused") {
  Problem p = zero_logits({{3, 5}});
  const auto path_of = [&](const Blocks& blocks) {
    p.requests[0].blocks = blocks;
    return attention(p).status().path;
  };
  CHECK(path_of({2, 2, {0, 1, 1}, {2}}) == "");
  CHECK(path_of({0, 2, {0, 1, 1}, {2}}) == "requests[0].blocks");
  CHECK(path_of({2, 2, {0, 1}, {2}}) == "requests[0].blocks.indptr");
  CHECK(path_of({2, 2, {0, 2, 1}, {2}}) == "requests[0].blocks.indptr");
  CHECK(path_of({2, 2, {0, 1, 2}, {2}}) == "requests[0].blocks.indices");
}

}  // namespace
}  // namespace attnloom::reference
