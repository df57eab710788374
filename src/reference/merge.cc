// SPDX-License-Identifier: Apache-2.0
#include "reference/merge.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

namespace attnloom::reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Status check(const State& state, std::size_t size, const std::string& field) {
  if (std::isnan(state.lse) || state.lse == kInfinity) {
    return make_error(Code::kArgumentInvalid, field + ".lse",
                      std::string("wanted a finite number or -inf, given ") +
                          (std::isnan(state.lse) ? "nan" : "inf"),
                      "a set without keys has -inf");
  }
  if (state.o.size() != size) {
    return make_error(
        Code::kArgumentInvalid, field + ".o",
        "wanted " + std::to_string(size) + " elements, given " + std::to_string(state.o.size()));
  }
  return ok_status();
}

// REQUIRES: both checked, b not empty.
State join(const State& a, const State& b) {
  if (a.lse == -kInfinity) return b;
  const double largest = std::max(a.lse, b.lse);
  const double weight_a = std::exp(a.lse - largest);
  const double weight_b = std::exp(b.lse - largest);
  const double sum = weight_a + weight_b;
  State joined{std::vector<double>(a.o.size()), largest + std::log(sum)};
  for (std::size_t d = 0; d < a.o.size(); ++d) {
    joined.o[d] = (weight_a * a.o[d] + weight_b * b.o[d]) / sum;
  }
  return joined;
}

}  // namespace

Result<State> merge(const State& a, const State& b) {
  const State pair[] = {a, b};
  return merge_all(pair, static_cast<int>(a.o.size()));
}

Result<State> merge_all(std::span<const State> states, int dim) {
  if (dim < 0) return make_error(Code::kArgumentInvalid, "dim", "wanted at least 0");
  State joined{std::vector<double>(static_cast<std::size_t>(dim)), -kInfinity};
  for (std::size_t i = 0; i < states.size(); ++i) {
    ATTNLOOM_CHECK(check(states[i], joined.o.size(), "states[" + std::to_string(i) + "]"));
    // An empty state's o may be anything, so it is not joined at all.
    if (states[i].lse != -kInfinity) joined = join(joined, states[i]);
  }
  return joined;
}

}  // namespace attnloom::reference
