// SPDX-License-Identifier: Apache-2.0
// The test of the tests: each mutant of the device code must be noticed, under every order of warps
// and CTAs tried, and the code as it stands must be clean under all of them.
#include <catch2/catch.hpp>
#include <string>

#include "kernels/kernel_rig.h"

namespace attnloom::testing {
namespace {

constexpr int kSeeds = 20;

struct Mutant {
  const char* name;
  const char* header;
  const char* from;
  const char* to;
  int launches = 1;    // of one plan
  bool causal = true;  // the case's mask
  int query_tile = 16;
};

// Two requests, grouped heads, a tail in every tile, causal rows, split KV (so the merge runs):
// small, and hits all of it. The last chunk is one tile of keys: behind two, the epilogue
// overwrites none that others still read. (Without the causal mask for what the causal mask would
// hide.)
constexpr const char* kCase = R"({"case": 1,
  "spec": {"attnloom": 1, "kernel": "attention", "dtype": {"q": "bf16", "kv": "bf16", "o": "bf16"},
    "head_dim": {"qk": 64, "vo": 64}, "group_size": 3, "layout": {"kv": "paged", "page_size": 5},
    "tile": {"q": 16, "kv": 64}, "variant": {"name": "plain", "mask": {"causal": true}}},
  "workload": {"heads": {"q": 3, "kv": 1}, "qo_len": [7, 1], "kv_len": [230, 445]},
  "inputs": {"q": {"random": "normal", "seed": 1}, "k": {"random": "normal", "seed": 2},
    "v": {"random": "normal", "seed": 3}}})";

constexpr Mutant kMutants[] = {
    {"missing barrier", "loom/pipeline.cuh", "__syncthreads();\n      tile.step", "tile.step"},
    {"missing barrier before the epilogue", "loom/pipeline.cuh",
     "copy_async_wait<0>();\n  __syncthreads();", "copy_async_wait<0>();"},
    {"missing wait for copies", "loom/pipeline.cuh", "copy_async_wait<kAhead - 1>();",
     "copy_async_wait<kAhead>();"},
    {"one page index too far", "loom/copy.cuh",
     "token < kv_end ? pages[token / kIndexedTokens] : 0",
     "pages[token / kIndexedTokens + (token >= kv_end)]"},
    {"wrong swizzle on the reader's side", "loom/tile.cuh",
     "(place.slab ^ static_cast<u32>((more_chunks & 7) << 4))",
     "(place.slab + static_cast<u32>((more_chunks & 7) << 4))"},
    {"tail rows left as they were", "loom/copy.cuh", "copy_async_16((to ^",
     "if (exists) copy_async_16((to ^"},
    {"misaligned store", "loom/epilogue.cuh", "*reinterpret_cast<uint4*>(o + dim) = bits;",
     "*reinterpret_cast<uint4*>(o + dim + 1) = bits;"},
    {"causal mask off by one", "loom/variant.cuh", "row.end = min(row.end, row.q_pos + 1);",
     "row.end = min(row.end, row.q_pos);"},
    {"end of the keys off by one", "loom/variant.cuh", "request.kv_len : kv_end;",
     "request.kv_len : kv_end + 1;", 1, false},
    {"fence before the counter dropped", "loom/epilogue.cuh", "fence_gpu();\n    scratch[i]",
     "scratch[i]"},
    {"fence after the counter dropped", "loom/epilogue.cuh",
     "counter_add(counters + merge_of(i), 1);\n    fence_gpu();",
     "counter_add(counters + merge_of(i), 1);"},
    {"counter raised before the partial is stored", "loom/epilogue.cuh",
     "Crew::sync();\n#pragma unroll 1\n  for (int i = Crew::thread(); i < tiles;",
     "for (int i = Crew::thread(); i < tiles;"},
    {"counter not reset", "loom/epilogue.cuh", "if (thread == 0) counters[merge_of(i)] = 0;", ";",
     2},
    {"one state too few merged", "loom/shared.cuh", "chunks(tile.count),",
     "chunks(tile.count - 1),"},
    {"lanes of a warp do not wait for each other", "attention_mma.cuh",
     "__syncwarp();\n      for (int i = lane_index()", "for (int i = lane_index()", 1, true, 64},
    {"decode: missing barrier before the epilogue", "loom/pipeline.cuh",
     "copy_async_wait<0>();\n  __syncthreads();", "copy_async_wait<0>();", 1, true, 1},
    {"decode: states merged before all are there", "decode_simt.cuh",
     "__syncthreads();\n    const OutputRows", "const OutputRows", 1, true, 1},
    {"decode: a key's mask taken from the first group's", "decode_simt.cuh",
     "position(Groups::group(), i * Groups::kCount)", "position(0, i * Groups::kCount)", 1, true,
     1},
    {"decode: one step of the reduction left out", "loom/lane_groups.cuh", "lanes > 0;",
     "lanes > 1;", 1, true, 1},
    {"decode: counter not reset", "loom/epilogue.cuh",
     "if (thread == 0) counters[merge_of(i)] = 0;", ";", 2, true, 1},
};

std::string run_with(const CaseFile& file, std::uint64_t seed, int launches,
                     const std::function<void(Source&)>& edit) {
  const std::unique_ptr<Engine> engine = make_edited_engine(seed, edit);
  return judge_run(file, run_case(*engine, file, {.launches = launches}));
}

CaseFile small_case(bool causal, int query_tile) {
  std::string text = kCase;
  const std::string tile = "\"q\": 16,";
  text.replace(text.find(tile), tile.size(), "\"q\": " + std::to_string(query_tile) + ",");
  const std::string mask = "\"causal\": true";
  if (!causal) text.replace(text.find(mask), mask.size(), "\"causal\": false");
  return parse_or_fail(text);
}

}  // namespace

TEST_CASE("every mutant is noticed under every order", "[mutants]") {
  for (const Mutant& mutant : kMutants) {
    const CaseFile file = small_case(mutant.causal, mutant.query_tile);
    for (int seed = 0; seed < kSeeds; ++seed) {
      INFO(mutant.name << ", seed " << seed);
      const std::string verdict = run_with(file, seed, mutant.launches, [&](Source& source) {
        replace_once(source, mutant.header, mutant.from, mutant.to);
      });
      CHECK(verdict != "");
    }
  }
}

TEST_CASE("the code as it stands is clean under every order", "[mutants]") {
  const int query_tile = GENERATE(1, 16, 64);
  for (const bool causal : {true, false}) {
    const CaseFile file = small_case(causal, query_tile);
    for (int seed = 0; seed < kSeeds; ++seed) {
      INFO("query tile " << query_tile << ", causal " << causal << ", seed " << seed);
      CHECK(run_with(file, seed, 2, [](Source&) {}) == "");
    }
  }
}

}  // namespace attnloom::testing
