// SPDX-License-Identifier: Apache-2.0
// Small problems of the worked cases.
#pragma once

#include <catch2/catch.hpp>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "reference/attention.h"

namespace attnloom::reference {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

using Lengths = std::vector<std::pair<std::int64_t, std::int64_t>>;  // (qo_len, kv_len)

// All logits 0 and the value of key j the number j, counted in each request; heads of one
// dimension.
inline Problem zero_logits(const Lengths& lengths, int q_heads = 1, int kv_heads = 1) {
  Problem p{.q_heads = q_heads, .kv_heads = kv_heads, .dim_qk = 1, .dim_vo = 1};
  for (const auto& [qo_len, kv_len] : lengths) {
    p.requests.push_back({qo_len, kv_len, {}});
    p.q.resize(p.q.size() + static_cast<std::size_t>(qo_len * q_heads), 0.0);
    p.k.resize(p.k.size() + static_cast<std::size_t>(kv_len * kv_heads), 0.0);
    for (std::int64_t j = 0; j < kv_len; ++j) {
      p.v.insert(p.v.end(), static_cast<std::size_t>(kv_heads), static_cast<double>(j));
    }
  }
  return p;
}

// One query and one head; the scores and values of its keys.
inline Problem scored(const std::vector<double>& scores, const std::vector<double>& values) {
  Problem p = zero_logits({{1, static_cast<std::int64_t>(scores.size())}});
  p.q = {1.0};
  p.k = scores;
  p.v = values;
  return p;
}

inline Output solve(const Problem& problem) {
  Result<Output> output = attention(problem);
  INFO(output.status().to_string());
  REQUIRE(output.ok());
  return *output;
}

inline void check_near(const std::vector<double>& got, const std::vector<double>& want,
                       double margin = 1e-7) {
  REQUIRE(got.size() == want.size());
  for (std::size_t i = 0; i < want.size(); ++i) {
    CAPTURE(i);
    if (want[i] == -kInfinity) {
      CHECK(got[i] == -kInfinity);
    } else {
      CHECK(got[i] == Approx(want[i]).margin(margin).epsilon(0));
    }
  }
}

}  // namespace attnloom::reference
