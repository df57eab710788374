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

// The kernels of a paged cache.
inline Json append_json() {
  return Json::parse(R"({"attnloom": 1, "kernel": "append", "target": "sm_90a",
    "dtype": {"q": "bf16", "kv": "e4m3"}, "head_dim": {"qk": 128, "vo": 64},
    "layout": {"kv": "paged", "page_size": 16}})");
}
inline Json append_rope_json() {
  Json json = append_json();
  json["kernel"] = "append_rope";
  json["variant"] = {{"rope", {{"style", "neox"}}}};
  return json;
}
inline Json page_copy_json() {
  Json json = append_json();
  json["kernel"] = "page_copy";
  json["dtype"].erase("q");
  return json;
}

inline Spec plain_spec() {
  Spec spec;
  spec.target = Target{90, 'a'};
  spec.head_dim = {128, 128};
  spec.group_size = 4;
  return spec;
}

}  // namespace attnloom
