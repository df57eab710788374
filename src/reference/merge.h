// SPDX-License-Identifier: Apache-2.0
// The operator that joins partial attention states over disjoint sets of keys, in float64. Pure;
// thread-safe.
#pragma once

#include <limits>
#include <span>
#include <vector>

#include "base/status.h"

namespace attnloom::reference {

// The attention of one row over a set of keys. lse = -inf is the empty set; its o is never read.
struct State {
  std::vector<double> o;
  double lse = -std::numeric_limits<double>::infinity();
};

// Exact when a side is empty. Refused: an lse of +inf or NaN (no set of keys has it), outputs of
// different size.
Result<State> merge(const State& a, const State& b);

// The fold from the left. No states: o of `dim` zeros, lse -inf.
Result<State> merge_all(std::span<const State> states, int dim);

}  // namespace attnloom::reference
