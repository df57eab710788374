// SPDX-License-Identifier: Apache-2.0
// Functors on the device: every shipped variant and every kind of functor, over layouts, tile
// classes, split and whole items and head dims, against the float64 reference on a clean simulator.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "kernels/covering.h"
#include "kernels/kernel_rig.h"
#include "kernels/shipped.h"

namespace attnloom::testing {
namespace {

constexpr std::uint64_t kSeed = 20270114;

// What no shipped variant has; these have no twin and are judged by their own functors.
const std::vector<const char*> kOwn = {
    // Every kind at once, each with all of its arguments.
    R"({"name": "everything", "mask": {"causal": true}, "sink": "sinks",
        "params": [{"name": "sinks", "type": "ptr<f32>"}, {"name": "step", "type": "i32"}],
        "prelude": "__device__ float tilt(int i) { return 0.5f + 0.0625f * float(i & 7); }",
        "logits_transform": "return logits + tilt(batch + q_pos + 3 * kv_pos + 5 * q_head + 7 * kv_head + q_len / 2 + kv_len / 4);",
        "logits_mask": "return (batch + q_pos + kv_pos + q_head + kv_head + q_len + kv_len) % step != 0;",
        "output_transform": "return o * tilt(dim + batch + q_pos + 3 * q_head + kv_head + q_len / 2 + kv_len / 4) + 0.125f * (lse > -1e30f ? lse : -3.0f);",
        "query_transform": "x.map([&](int i, float v) { return v * tilt(i + a.pos + 3 * a.head + a.batch + a.q_len / 2 + a.kv_len / 4); });",
        "key_transform": "x.map([&](int i, float v) { return v * tilt(i + 3 * a.pos + a.head + a.batch + a.q_len / 2 + a.kv_len / 4); });",
        "value_transform": "x.map([&](int i, float v) { return v + tilt(i + 5 * a.pos + a.head + a.batch + a.q_len / 2 + a.kv_len / 4); });"})",
    // Access to single elements, sums, and partial rotations of every kind of pairing.
    R"({"name": "row_methods",
        "query_transform": "x.set(3, x.get(x.size() - 1)); x.rotate_half(8, [&](int i, float& c, float& s) { loom::rotation(a.pos, 1.0f / float(i + 1), c, s); });",
        "key_transform": "x.rotate_half(6, [&](int i, float& c, float& s) { loom::rotation(a.pos, 1.0f / float(i + 1), c, s); }); x.rotate_pairs(10, [](int i, float& c, float& s) { c = 0.6f; s = i & 1 ? 0.8f : -0.8f; });",
        "value_transform": "const float mean = x.sum([](int i, float v) { return v; }) / float(x.size()); x.scale(0.5f); x.map([&](int i, float v) { return v - mean; });"})",
};
const std::vector<const char*> kTiles = {R"({"q": 1, "kv": 32})",    R"({"q": 16, "kv": 64})",
                                         R"({"q": 32, "kv": 32})",   R"({"q": 64, "kv": 32})",
                                         R"({"q": 128, "kv": 32})",  R"({"classes": [16, 64]})",
                                         R"({"classes": [16, 128]})"};
const std::vector<int> kDims = {64, 80, 128, 256};
const std::vector<std::vector<std::pair<int, int>>> kLengths = {
    {{1, 33}, {9, 20}, {1, 0}, {3, 1}},  // every tile of keys an item of its own: nothing is split
    {{1, 300}, {20, 197}, {5, 3}, {1, 0}},  // split
};

Json case_for(const Json& variant, bool paged, const std::string& tile, int dim, const char* dtype,
              const std::vector<std::pair<int, int>>& lengths, int group = 4, int kv_heads = 2) {
  Json layout = {{"kv", paged ? "paged" : "ragged"}};
  if (paged) layout["page_size"] = 5;
  Json qo_len = Json::array(), kv_len = Json::array();
  for (const auto& [qo, kv] : lengths) {
    qo_len.push_back(qo);
    kv_len.push_back(kv);
  }
  const Json params =
      params_for(variant, {.q_heads = group * kv_heads, .dim_qk = dim, .lengths = lengths});
  Json inputs;
  for (const char* name : {"q", "k", "v"}) inputs[name] = {{"random", "normal"}, {"seed", name[0]}};
  if (!params.empty()) inputs["params"] = params;
  Json workload = {{"heads", {{"q", group * kv_heads}, {"kv", kv_heads}}},
                   {"qo_len", qo_len},
                   {"kv_len", kv_len}};
  add_custom_mask(workload, variant, lengths);
  return {{"case", 1},
          {"spec",
           {{"attnloom", 1},
            {"kernel", "attention"},
            {"dtype", {{"q", dtype}, {"kv", dtype}, {"o", dtype}}},
            {"head_dim", {{"qk", dim}, {"vo", dim}}},
            {"group_size", group},
            {"layout", layout},
            {"tile", Json::parse(tile)},
            {"variant", variant}}},
          {"workload", workload},
          {"inputs", inputs}};
}

std::vector<Json> variants() {
  std::vector<Json> list;
  for (const std::string& name : shipped_variants()) list.push_back(shipped_variant(name));
  for (const char* text : kOwn) list.push_back(Json::parse(text));
  return list;
}

void judge(Engine& engine, const Json& json) {
  const std::string text = json.dump();
  INFO(text);
  const CaseFile file = parse_or_fail(text, kSeed);
  const Result<CaseRun> run = run_case(engine, file);
  // A named tile may not fit a head dim: that is an answer, but only this one.
  if (!run.ok() && run.status().path.starts_with("$.tile")) return;
  CHECK(judge_run(file, run) == "");
}

void run_pairs(CoveringPart covering) {
  const std::unique_ptr<Engine> engine = make_test_engine(kSeed);
  const std::vector<Json> all = variants();
  const std::vector<int> levels = {static_cast<int>(all.size()), 2, static_cast<int>(kTiles.size()),
                                   4, 2};
  const std::vector<std::vector<int>> rows = pairwise_rows(levels, kSeed);
  const std::vector<std::vector<int>> part = part_of(rows, covering);
  WARN(part.size() << " of " << rows.size() << " cells, seed " << kSeed);
  for (const std::vector<int>& row : part) {
    const auto at = [&](int factor) { return static_cast<std::size_t>(row[factor]); };
    judge(*engine, case_for(all[at(0)], row[1] == 1, kTiles[at(2)], kDims[at(3)],
                            row[3] % 2 == 0 ? "f16" : "bf16", kLengths[at(4)]));
  }
}

}  // namespace

TEST_CASE("functors over layouts, classes, splits and head dims, a", "[pairs_a]") {
  run_pairs(CoveringPart::kNinth);
}

TEST_CASE("functors over layouts, classes, splits and head dims, b", "[pairs_b]") {
  run_pairs(CoveringPart::kEven);
}

TEST_CASE("functors over layouts, classes, splits and head dims, c", "[pairs_c]") {
  run_pairs(CoveringPart::kOdd);
}

// Chunks of several KV tiles: the query rows must be transformed with the first of them only. Head
// dim 144 is past those whose queries are held in registers, where a second pass would change
// nothing.
TEST_CASE("rows are transformed once an item", "[rows]") {
  const std::unique_ptr<Engine> engine = make_test_engine(kSeed);
  for (const char* name : {"rope_neox", "qk_norm"}) {
    judge(*engine, case_for(shipped_variant(name), true, R"({"q": 16, "kv": 64})", 144, "bf16",
                            {{200, 260}}, 8, 2));
  }
}

// Positions count from the first key, so far ones would need as many keys: frequencies 17000 times
// as high stand for them. The angles of the last keys are those of position a million.
TEST_CASE("RoPE at angles of a million radians", "[rows]") {
  const std::unique_ptr<Engine> engine = make_test_engine(kSeed);
  for (const char* name : {"rope_neox", "rope_interleaved"}) {
    Json json =
        case_for(shipped_variant(name), false, R"({"q": 16, "kv": 64})", 128, "f16", {{4, 60}});
    for (Json& frequency : json["inputs"]["params"]["inv_freq"]["data"])
      frequency = static_cast<float>(frequency.get<double>() * 17000);
    judge(*engine, json);
  }
}

}  // namespace attnloom::testing
