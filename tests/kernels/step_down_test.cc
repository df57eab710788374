// SPDX-License-Identifier: Apache-2.0
// The KV tile of 16 tokens, which no spec can ask for and only a step down after a spill picks
// (spec/tiles.h).
#include <catch2/catch.hpp>

#include "kernels/kernel_rig.h"

namespace attnloom::testing {
namespace {

constexpr const char* kCase = R"({"case": 1,
  "spec": {"attnloom": 1, "kernel": "attention", "dtype": {"q": "bf16", "kv": "bf16", "o": "bf16"},
    "head_dim": {"qk": 128, "vo": 128}, "group_size": 5,
    "layout": {"kv": "paged", "page_size": 12}, "tile": {"q": 128, "kv": 32},
    "variant": {"name": "soft_cap", "mask": {"causal": true, "window_left": "runtime"},
      "params": [{"name": "cap", "type": "f32"}],
      "logits_transform": "return cap * loom::tanh(logits / cap);"}},
  "workload": {"heads": {"q": 5, "kv": 1}, "qo_len": [40, 1], "kv_len": [90, 75], "window_left": 60},
  "inputs": {"q": {"random": "normal", "seed": 1}, "k": {"random": "normal", "seed": 2},
    "v": {"random": "normal", "seed": 3}, "params": {"cap": 20.0}}})";

}  // namespace

TEST_CASE("a kernel with a KV tile of 16 tokens agrees with the reference") {
  const CaseFile file = parse_or_fail(kCase);
  const std::unique_ptr<Engine> engine = make_edited_engine(0, [](Source& source) {
    const std::string tile = "kQ = 128, kKv = 32";
    const std::size_t at = source.text.find(tile);
    REQUIRE(at != std::string::npos);
    source.text.replace(at, tile.size(), "kQ = 128, kKv = 16");
  });
  CHECK(judge_run(file, run_case(*engine, file)) == "");
}

}  // namespace attnloom::testing
