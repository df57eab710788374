// SPDX-License-Identifier: Apache-2.0
// tile_mask: tiles that it skips cost nothing, tiles that it calls full are not asked about, and
// what it says is believed. The float64 reference knows only logits_mask.
#include <catch2/catch.hpp>

#include "kernels/kernel_rig.h"
#include "kernels/sinks_and_window.h"

namespace attnloom::testing {
namespace {

constexpr int kDim = 64;
constexpr int kKvTile = 64;

struct Batch {
  std::string layout = R"({"kv": "ragged"})";
  std::string tile = R"({"q": 16, "kv": 64})";
  std::vector<int> qo_len = {1};
  std::vector<int> kv_len = {2000};
  int sinks = 4;
  int window = 300;
  int group = 4;
  bool rows = false;  // with row functors
  const char* tiles = kSinksAndWindowTiles;
};

Json case_of(const Batch& b) {
  Json variant = {
      {"name", "streaming"},
      {"mask", {{"causal", true}}},
      {"params", {{{"name", "sinks"}, {"type", "i32"}}, {{"name", "window"}, {"type", "i32"}}}},
      {"logits_mask", kSinksAndWindow}};
  if (b.tiles != nullptr) variant["tile_mask"] = b.tiles;
  if (b.rows) {
    variant["query_transform"] = "x.scale(1.0f + float(a.pos & 1));";
    variant["key_transform"] = "x.scale(1.0f - 0.25f * float(a.pos & 3));";
  }
  Json value = {
      {"case", 1},
      {"spec",
       {{"attnloom", 1},
        {"kernel", "attention"},
        {"dtype", {{"q", "bf16"}, {"kv", "bf16"}, {"o", "bf16"}}},
        {"head_dim", {{"qk", kDim}, {"vo", kDim}}},
        {"group_size", b.group},
        {"layout", Json::parse(b.layout)},
        {"tile", Json::parse(b.tile)},
        {"variant", variant}}},
      {"workload",
       {{"heads", {{"q", 2 * b.group}, {"kv", 2}}}, {"qo_len", b.qo_len}, {"kv_len", b.kv_len}}},
      {"inputs", {{"params", {{"sinks", b.sinks}, {"window", b.window}}}}}};
  for (const char* name : {"q", "k", "v"})
    value["inputs"][name] = {{"random", "normal"}, {"seed", name[0]}};
  const Json& layout = value["spec"]["layout"];
  if (layout["kv"] == "padded")
    value["workload"]["padded"] = {{"capacity", 2100},
                                   {"start", std::vector<int>(b.qo_len.size(), 7)}};
  if (layout["kv"] != "bsr") return value;
  // Every block, last first, so that positions fall along the walk.
  Json indptr = {0}, indices = Json::array();
  for (std::size_t r = 0; r < b.qo_len.size(); ++r) {
    for (int row = 0; row < b.qo_len[r]; row += layout["block"][0].get<int>()) {
      const int columns = layout["block"][1];
      for (int c = (b.kv_len[r] + columns - 1) / columns; c-- > 0;) indices.push_back(c);
      indptr.push_back(indices.size());
    }
  }
  value["workload"]["bsr"] = {{"block", layout["block"]}, {"indptr", indptr}, {"indices", indices}};
  return value;
}

sim::Counters counters(const Batch& b) {
  const std::unique_ptr<Engine> engine = make_test_engine();
  const CaseFile file = parse_or_fail(case_of(b).dump());
  const Result<CaseRun> run = run_case(*engine, file);
  CHECK(judge_run(file, run) == "");
  return run.ok() ? run->report.counters : sim::Counters{};
}

std::string verdict(const Batch& b) {
  const std::unique_ptr<Engine> engine = make_test_engine();
  const CaseFile file = parse_or_fail(case_of(b).dump());
  return judge_run(file, run_case(*engine, file));
}

std::uint64_t mma_of_tile(const Batch& b) {
  const int query_tile = Json::parse(b.tile)["q"];
  return static_cast<std::uint64_t>(query_tile / 16) *
         (kKvTile / 8 * (kDim / 16) + kDim / 8 * (kKvTile / 16));
}

// KV tiles with a pair that causality and the mask leave, times the products of a tile.
std::uint64_t mma_formula(const Batch& b) {
  const int query_tile = Json::parse(b.tile)["q"];
  std::uint64_t tiles = 0;
  for (std::size_t r = 0; r < b.qo_len.size(); ++r) {
    const int rows = b.qo_len[r] * b.group;
    for (int row = 0; row < rows; row += query_tile) {
      const int shift = b.kv_len[r] - b.qo_len[r];
      const int first = row / b.group + shift;
      const int last = (std::min(row + query_tile, rows) - 1) / b.group + shift;
      for (int begin = 0; begin < std::min(b.kv_len[r], last + 1); begin += kKvTile) {
        const int end = std::min(begin + kKvTile, last + 1);
        tiles += begin < b.sinks || end - 1 > first - b.window ? 1 : 0;
      }
    }
  }
  return 2 * tiles * mma_of_tile(b);
}

}  // namespace

TEST_CASE("skipped tiles are neither multiplied nor loaded", "[tile_mask]") {
  if (on_cuda()) return;  // the simulator counts, a GPU does not
  const Batch decode;
  const Batch prefill{.tile = R"({"q": 64, "kv": 64})", .qo_len = {150}, .kv_len = {1000}};
  for (const Batch& batch : {decode, prefill}) {
    Batch asked = batch;
    asked.tiles = nullptr;
    const sim::Counters with = counters(batch), without = counters(asked);
    CHECK(with.mma == mma_formula(batch));
    CHECK(with.mma * 2 < without.mma);
    // Beside them the two kernels fetch about the same.
    const std::uint64_t skipped = (without.mma - with.mma) / mma_of_tile(batch);
    const std::uint64_t bytes = 32 * (without.global_fetch_sectors - with.global_fetch_sectors);
    const std::uint64_t of_skipped = skipped * kKvTile * 2 * kDim * 2;
    CHECK(bytes <= of_skipped);
    CHECK(bytes >= of_skipped - of_skipped / 100);
  }
}

TEST_CASE("every layout, class, split and row functor agrees with the mask alone", "[tile_mask]") {
  const std::vector<std::string> layouts = {
      R"({"kv": "ragged"})", R"({"kv": "paged", "page_size": 5})", R"({"kv": "padded"})",
      R"({"kv": "bsr", "block": [8, 32]})"};
  const std::vector<std::string> tiles = {R"({"q": 16, "kv": 64})", R"({"q": 128, "kv": 32})",
                                          R"({"classes": [16, 64]})"};
  for (std::size_t i = 0; i < layouts.size() * tiles.size(); ++i) {
    const Batch batch{.layout = layouts[i % layouts.size()],
                      .tile = tiles[i % tiles.size()],
                      .qo_len = {1, 40, 3},
                      .kv_len = {700, 333, 0},
                      .sinks = 70,
                      .window = 50,
                      .group = i % 2 == 0 ? 4 : 3,
                      .rows = i % 4 < 2};
    INFO(batch.layout << " " << batch.tile << (batch.rows ? " row functors" : ""));
    CHECK(verdict(batch) == "");
  }
}

TEST_CASE("what a tile_mask says is believed", "[tile_mask]") {
  const Batch right{.kv_len = {700}, .sinks = 70, .window = 50};
  CHECK(verdict(right) == "");
  Batch wrong = right;
  wrong.tiles = "return kv_pos_begin == 0 ? loom::TileMask::kSkip : loom::TileMask::kPartial;";
  CHECK(verdict(wrong) != "");
  wrong.tiles = "return loom::TileMask::kFull;";
  CHECK(verdict(wrong) != "");
  // Each argument, wrong where it should tell which tile or query it is.
  for (const char* given :
       {"q_pos_begin < 690", "q_pos_end != 700", "kv_pos_end % 64 != 0", "q_head_begin == 4",
        "q_head_end == 4", "kv_head == 1", "batch == 0", "q_len == 1", "kv_len == 700"}) {
    const std::string text =
        std::string("return ") + given + " ? loom::TileMask::kSkip : loom::TileMask::kPartial;";
    wrong.tiles = text.c_str();
    INFO(text);
    const bool skips =
        std::string(given) != "q_pos_begin < 690" && std::string(given) != "q_pos_end != 700";
    CHECK((verdict(wrong) != "") == skips);
  }
}

TEST_CASE("a composed tile_mask skips what its member skips and leaves nothing full",
          "[tile_mask]") {
  Batch batch{.kv_len = {1500}, .sinks = 70, .window = 200};
  Json value = case_of(batch);
  value["spec"]["variant"] = {{"name", "holes"},
                              {"compose", {"streaming_llm_rope"}},
                              {"logits_mask", "return kv_pos % 3 != 0;"}};
  value["inputs"]["params"]["inv_freq"] = {
      {"dtype", "f32"}, {"shape", {kDim / 2}}, {"random", "uniform"}, {"seed", 4}};
  const CaseFile file = parse_or_fail(value.dump());
  const std::unique_ptr<Engine> engine = make_test_engine();
  const Result<CaseRun> run = run_case(*engine, file);
  CHECK(judge_run(file, run) == "");
  REQUIRE(run.ok());
  if (!on_cuda()) CHECK(run->report.counters.mma == mma_formula(batch));
}

TEST_CASE("tiles of listed blocks that causality or the window hide are not multiplied",
          "[tile_mask]") {
  if (on_cuda()) return;
  // Each of 32 tiles of 16 queries lists all 8 blocks of 64 keys, last first.
  const auto mma = [](const char* mask) {
    Batch batch{.layout = R"({"kv": "bsr", "block": [16, 64]})",
                .tile = R"({"q": 16, "kv": 64})",
                .qo_len = {512},
                .kv_len = {512},
                .group = 1,
                .tiles = nullptr};
    Json value = case_of(batch);
    value["spec"]["variant"] = {{"name", "plain"}, {"mask", Json::parse(mask)}};
    value["inputs"].erase("params");
    const std::unique_ptr<Engine> engine = make_test_engine();
    const CaseFile file = parse_or_fail(value.dump());
    const Result<CaseRun> run = run_case(*engine, file);
    CHECK(judge_run(file, run) == "");
    return run.ok() ? run->report.counters.mma : 0;
  };
  const std::uint64_t tile = 2 * mma_of_tile({});
  std::uint64_t causal = 0, windowed = 0;
  for (int first = 0; first < 512; first += 16) {
    const int last = (first + 15) / 64;
    causal += last + 1;
    windowed += last + 1 - std::max(first - 63, 0) / 64;
  }
  CHECK(mma("{}") == 32 * 8 * tile);
  CHECK(mma(R"({"causal": true})") == causal * tile);
  CHECK(mma(R"({"causal": true, "window_left": 63})") == windowed * tile);
}

}  // namespace attnloom::testing
