// SPDX-License-Identifier: Apache-2.0
// The variants of examples/specs as the tests use them: the shipped text itself, and params that
// fit a workload. ATTNLOOM_TEST_SPECS names the folder on a machine that did not build this
// program.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/json.h"

namespace attnloom::testing {

// The names of all that are for attention, sorted.
std::vector<std::string> shipped_variants();

// The names of all others: append, append_rope, page_copy; sorted.
std::vector<std::string> shipped_helpers();

// examples/specs/NAME.json, and its "variant".
Json shipped_spec(const std::string& name);
Json shipped_variant(const std::string& name);

struct VariantUse {
  int q_heads = 1;
  int dim_qk = 64;
  std::vector<std::pair<int, int>> lengths;  // (query, KV) a request
};

// The case file's workload.mask where the variant has mask.custom: two bits of three set.
void add_custom_mask(Json& workload, const Json& variant,
                     const std::vector<std::pair<int, int>>& lengths);

// A value for each param of `variant`, by its name and type. Trees have at most 31 nodes.
Json params_for(const Json& variant, const VariantUse& use);

}  // namespace attnloom::testing
