// SPDX-License-Identifier: Apache-2.0
// The specs behind tests/render/golden/. Immutable.
#pragma once

#include <string>
#include <vector>

namespace attnloom {

struct GoldenSpec {
  std::string name;  // of the file golden/<name>.cu
  std::string json;
  int kernel;  // index into its kernel set
};

inline std::vector<GoldenSpec> golden_specs() {
  return {
      {"plain", R"({"attnloom": 1, "kernel": "attention", "target": "sm_80",
        "dtype": {"q": "f16", "kv": "f16", "o": "f16"}, "head_dim": {"qk": 64, "vo": 64}, "group_size": 1,
        "layout": {"kv": "ragged"}})",
       1},  // query tile 16; 0 is query tile 1
      {"soft_cap", R"({"attnloom": 1, "kernel": "attention", "target": "sm_90a", "task": "mixed",
        "dtype": {"q": "bf16", "kv": "bf16", "o": "bf16"}, "head_dim": {"qk": 128, "vo": 128}, "group_size": 4,
        "layout": {"kv": "paged", "page_size": 16}, "tile": "auto",
        "variant": {"name": "soft_cap", "mask": {"causal": true, "window_left": "runtime"},
          "params": [{"name": "cap", "type": "f32"}],
          "logits_transform": "return cap * loom::tanh(logits / cap);"}})",
       4},
      {"alibi", R"({"attnloom": 1, "kernel": "attention", "target": "sm_90a",
        "dtype": {"q": "f16", "kv": "f16", "o": "f16"}, "head_dim": {"qk": 128, "vo": 64}, "group_size": 7,
        "layout": {"kv": "paged", "page_size": 1}, "tile": {"q": 64, "kv": 32},
        "variant": {"name": "alibi", "mask": {"window_left": 1234567}, "softmax": false,
          "params": [{"name": "slopes", "type": "ptr<f32>"}, {"name": "step", "type": "i32"},
                     {"name": "table", "type": "ptr<bf16>"}, {"name": "limit", "type": "u32"}],
          "prelude": "// distance\n__device__ float distance(int a, int b) { return float(a - b); }",
          "logits_transform": "float bias = slopes[q_head] * distance(q_pos, kv_pos);\nreturn logits - 0.125f * bias;",
          "logits_mask": "return unsigned(kv_pos / step) <= limit && loom::to_float(table[kv_head]) > 1e-5f;"}})",
       0},
      {"merge", R"({"attnloom": 1, "kernel": "merge", "target": "sm_90a", "dtype": {"o": "bf16"},
        "head_dim": {"vo": 128}})",
       0},
      {"append", R"({"attnloom": 1, "kernel": "append", "target": "sm_80",
        "dtype": {"q": "f16", "kv": "e5m2"}, "head_dim": {"qk": 96, "vo": 64},
        "layout": {"kv": "paged", "page_size": 3}, "variant": {"name": "quantise", "kv_scale": "head"}})",
       0},
      {"append_rope", R"({"attnloom": 1, "kernel": "append_rope", "target": "sm_90a",
        "dtype": {"q": "bf16", "kv": "bf16"}, "head_dim": {"qk": 128, "vo": 128},
        "layout": {"kv": "paged", "page_size": 16}, "variant": {"rope": {"style": "neox", "rotary_dim": 64}}})",
       0},
      {"page_copy",
       R"({"attnloom": 1, "kernel": "page_copy", "target": "sm_90a", "dtype": {"kv": "e4m3"},
        "head_dim": {"qk": 192, "vo": 128}, "layout": {"kv": "paged", "page_size": 1}})",
       0},
      {"decode", R"({"attnloom": 1, "kernel": "attention", "target": "sm_90a",
        "dtype": {"q": "bf16", "kv": "e4m3", "o": "bf16"}, "head_dim": {"qk": 512, "vo": 512}, "group_size": 4,
        "layout": {"kv": "paged", "page_size": 16}, "variant": {"name": "decode", "kv_scale": "head"}})",
       0},
      {"every_functor", R"({"attnloom": 1, "kernel": "attention", "target": "sm_90a",
        "dtype": {"q": "bf16", "kv": "bf16", "o": "bf16"}, "head_dim": {"qk": 192, "vo": 128}, "group_size": 1,
        "layout": {"kv": "ragged"}, "tile": {"q": 16, "kv": 64},
        "variant": {"name": "every_functor", "sink": "sinks",
          "params": [{"name": "sinks", "type": "ptr<f32>"}, {"name": "inv_freq", "type": "ptr<f32>"}],
          "prelude": "constexpr float kHalf = 0.5f;",
          "logits_transform": "return logits * kHalf;",
          "logits_mask": "return kv_pos != batch;",
          "tile_mask": "return loom::TileMask::kPartial;",
          "output_transform": "return o * float(dim + 1) + lse;",
          "query_transform": "x.scale(kHalf);",
          "key_transform": "x.rotate_pairs(64, [&](int i, float& c, float& s) {\n  loom::rotation(a.pos, inv_freq[i], c, s);\n});",
          "value_transform": "x.set(0, 1.0f);"}})",
       0},
  };
}

}  // namespace attnloom
