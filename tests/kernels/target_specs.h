// SPDX-License-Identifier: Apache-2.0
// The specs whose kernels are compiled for every family of GPUs and, for sm_80, run: each shipped
// variant at head dim 128, and the causal mask over head dims and dtypes. One list, so that what
// is compiled is what is run.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/json.h"

namespace attnloom::testing {

struct TargetSpec {
  std::string name;  // "soft_cap", "causal d256 e4m3"
  Json spec;         // for attention; without a target, and with "tile": "auto"
};

std::vector<TargetSpec> target_specs();

// The shipped specs that are not for attention, and merge: compiled for every family too.
std::vector<TargetSpec> helper_specs();

// Batches that make plan() launch each kernel of an auto set in turn: (query, KV) a request. Group
// size 4; trees of 31 nodes at most.
std::vector<std::vector<std::pair<int, int>>> batches_of_every_class();

// The case file of a spec for a target and a batch, random inputs and params that fit it.
Json case_for_target(const Json& spec, const std::string& target,
                     const std::vector<std::pair<int, int>>& lengths);

}  // namespace attnloom::testing
