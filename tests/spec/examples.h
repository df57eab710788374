// SPDX-License-Identifier: Apache-2.0
// Specs for tests, as JSON and as values. Immutable.
#pragma once

#include <string>

#include "base/json.h"
#include "spec/spec.h"

namespace attnloom {

// Plain attention, everything that has a default left out.
inline Json plain_json() {
  return Json::parse(R"({"attnloom": 1, "kernel": "attention", "target": "sm_90a",
    "dtype": {"q": "bf16", "kv": "bf16", "o": "bf16"}, "head_dim": {"qk": 128, "vo": 128},
    "group_size": 4, "layout": {"kv": "ragged"}})");
}

inline Spec plain_spec() {
  Spec spec;
  spec.target = Target{90, 'a'};
  spec.head_dim = {128, 128};
  spec.group_size = 4;
  return spec;
}

}  // namespace attnloom
