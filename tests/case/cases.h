// SPDX-License-Identifier: Apache-2.0
// Small case files as JSON values, to be changed and parsed.
#pragma once

#include <catch2/catch.hpp>
#include <cstring>
#include <string>
#include <vector>

#include "base/json.h"
#include "tools/case/case_file.h"

namespace attnloom {

// The example of the format: 2 queries, 5 keys, 4 heads on 1, page 3 of a pool of 8, soft cap.
inline Json example_case() {
  return Json::parse(R"({
    "case": 1,
    "spec": {"attnloom": 1, "kernel": "attention", "dtype": {"q": "bf16", "kv": "bf16", "o": "bf16"},
             "head_dim": {"qk": 4, "vo": 2}, "group_size": 4,
             "layout": {"kv": "paged", "page_size": 16},
             "variant": {"name": "soft_cap", "mask": {"causal": true},
                         "params": [{"name": "cap", "type": "f32"}],
                         "logits_transform": "return cap * loom::tanh(logits / cap);"}},
    "workload": {"heads": {"q": 4, "kv": 1}, "qo_len": [2], "kv_len": [5], "scale": 1.0,
                 "pages": {"indptr": [0, 1], "indices": [3], "last_page_len": [5], "pool": 8}},
    "inputs": {"q": 0, "k": {"random": "normal", "seed": 1}, "v": [0, 1, 2, 3, 4],
               "params": {"cap": 30.0}},
    "expect": {"o": [1.5, 2.0], "lse": [1.3862944, 1.6094379], "atol": 0.001, "rtol": 1e-6}
  })");
}

// One head of dimension 1, f16, no functor, pages of 2 tokens dealt out.
inline Json paged_case(const std::vector<int>& qo_len, const std::vector<int>& kv_len) {
  Json value = Json::parse(R"({
    "case": 1,
    "spec": {"attnloom": 1, "kernel": "attention", "dtype": {"q": "f16", "kv": "f16", "o": "f16"},
             "head_dim": {"qk": 1, "vo": 1}, "group_size": 1,
             "layout": {"kv": "paged", "page_size": 2}},
    "workload": {"heads": {"q": 1, "kv": 1}},
    "inputs": {"q": 0, "k": 0, "v": 0}
  })");
  value["workload"]["qo_len"] = qo_len;
  value["workload"]["kv_len"] = kv_len;
  return value;
}

inline Json ragged_case(const std::vector<int>& qo_len, const std::vector<int>& kv_len) {
  Json value = paged_case(qo_len, kv_len);
  value["spec"]["layout"] = Json::parse(R"({"kv": "ragged"})");
  return value;
}

inline CaseFile parsed(const Json& value, const std::string& directory = "",
                       const CaseOptions& options = {}) {
  auto file = parse_case(canonical_json(value), directory, options);
  INFO(file.status().to_string());
  REQUIRE(file.ok());
  return *file;
}

inline Status refused(const Json& value) {
  const auto file = parse_case(canonical_json(value), "");
  REQUIRE_FALSE(file.ok());
  CHECK(file.status().cause.find("line 1: ") == 0);
  return file.status();
}

inline std::uint16_t element(const CacheImage& image, std::int64_t index) {
  std::uint16_t bits;
  REQUIRE(static_cast<std::size_t>(index + 1) * sizeof bits <= image.bytes.size());
  std::memcpy(&bits, image.bytes.data() + index * std::int64_t{sizeof bits}, sizeof bits);
  return bits;
}

}  // namespace attnloom
