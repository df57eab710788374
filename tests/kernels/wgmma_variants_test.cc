// SPDX-License-Identifier: Apache-2.0
// What of a variant attention_wgmma does beside its products: bits of custom masks, tiles that are
// skipped, and rows that functors rewrite. Each against the float64 reference or the mask that a
// tile_mask stands for, clean under every order of warps, and with every planted fault noticed.
#include <catch2/catch.hpp>
#include <utility>

#include "kernels/shipped.h"
#include "kernels/sinks_and_window.h"
#include "kernels/wgmma_cases.h"

namespace attnloom::testing {
namespace {

constexpr const char* kAlgorithm = "attention_wgmma.cuh";
constexpr const char* kGather = "loom/gather_sm90.cuh";
constexpr const char* kItems = "loom/items_sm90.cuh";
constexpr const char* kRing = "loom/ring_sm90.cuh";
constexpr const char* kRows = "loom/rows_sm90.cuh";

// Rows of bits that begin at any bit, tails in every tile, requests without keys or queries.
const Shape kMixed = {{60, 0, 5, 131}, {300, 40, 0, 411}};

std::vector<std::pair<int, int>> lengths_of(const Shape& shape) {
  std::vector<std::pair<int, int>> lengths;
  for (std::size_t r = 0; r < shape.qo_len.size(); ++r)
    lengths.emplace_back(shape.qo_len[r], shape.kv_len[r]);
  return lengths;
}

Json masked_case(Kernel kernel, const Shape& shape, bool causal = false) {
  kernel.variant = variant("custom", causal, {{"mask", {{"custom", true}}}});
  Json workload = Json::object();
  add_custom_mask(workload, kernel.variant, lengths_of(shape));
  return wgmma_case(kernel, shape, {}, workload);
}

Json tiles_case(Kernel kernel, const Shape& shape,
                const std::string& tiles = kSinksAndWindowTiles) {
  kernel.variant = variant(
      "streaming", true,
      {{"params", {{{"name", "sinks"}, {"type", "i32"}}, {{"name", "window"}, {"type", "i32"}}}},
       {"logits_mask", kSinksAndWindow}});
  if (!tiles.empty()) kernel.variant["tile_mask"] = tiles;
  return wgmma_case(kernel, shape, {{"sinks", 5}, {"window", 90}});
}

const Shape kLong = {{60, 0, 5, 131}, {700, 40, 0, 611}};
const Kernel kSmall = {.qk = 64, .vo = 64, .kv_tile = 64};

// A shipped variant as it is, or one whose rows show where each of them stands.
Json rows_case(Kernel kernel, const Shape& shape, const char* name) {
  kernel.variant = shipped_variant(name);
  return wgmma_case(kernel, shape,
                    params_for(kernel.variant, {.q_heads = shape.group * shape.kv_heads,
                                                .dim_qk = kernel.qk,
                                                .lengths = lengths_of(shape)}));
}
constexpr const char* kQueryRows = "x.scale(1.0f + 0.5f * float((a.pos + a.head) & 1));";
constexpr const char* kKeyRows = "x.map([&](int i, float v) { return (a.pos + i) % 3 ? v : -v; });";
constexpr const char* kValueRows =
    "x.map([&](int i, float v) { return v + float((a.pos % 3 + i) & 1); });";
Json own_rows_case(Kernel kernel, const Shape& shape, bool causal, const char* query,
                   const char* key, const char* value) {
  kernel.variant = variant("rows", causal);
  if (query != nullptr) kernel.variant["query_transform"] = query;
  if (key != nullptr) kernel.variant["key_transform"] = key;
  if (value != nullptr) kernel.variant["value_transform"] = value;
  return wgmma_case(kernel, shape);
}

Kernel small(int page) {
  Kernel kernel = kSmall;
  kernel.layout = paged(page);
  return kernel;
}

}  // namespace

TEST_CASE("warpgroup kernels read the bits of custom masks", "[masks]") {
  check_wgmma(masked_case({}, kMixed));
  check_wgmma(masked_case({}, kMixed, true));
  check_wgmma(masked_case(small(16), kMixed));
  check_wgmma(masked_case(small(5), {{60, 9}, {300, 411}, 3, 1}, true));
  check_wgmma(masked_case({.layout = {{"kv", "padded"}}, .dtype = "f16"}, {{140}, {150}, 1, 2}));
  check_wgmma(masked_case({.qk = 64, .vo = 64, .q_tile = 192, .kv_tile = 96}, kMixed));
  check_wgmma(masked_case({.qk = 256, .vo = 256, .kv_tile = 80}, kMixed));
}

TEST_CASE("warpgroup kernels leave out the tiles that tile_mask skips", "[tile_masks]") {
  check_wgmma(tiles_case({}, kLong));
  check_wgmma(tiles_case(small(16), kLong));
  check_wgmma(tiles_case(small(5), {{60, 9}, {700, 411}, 3, 1}));
  check_wgmma(tiles_case({.qk = 64, .vo = 64, .q_tile = 192}, kLong));
  check_wgmma(
      tiles_case({.layout = {{"kv", "padded"}}, .qk = 256, .vo = 256, .kv_tile = 64}, kLong));
}

TEST_CASE("warpgroup kernels believe what a tile_mask says", "[tile_masks]") {
  const std::unique_ptr<Engine> engine = make_test_engine();
  const auto judge = [&](const char* tiles) {
    return judge_wgmma(*engine, parse_or_fail(tiles_case(kSmall, kLong, tiles).dump()), 2);
  };
  CHECK(judge("return kv_pos_begin == 64 ? loom::TileMask::kFull : loom::TileMask::kPartial;") !=
        "");
  CHECK(judge("return kv_pos_begin == 0 ? loom::TileMask::kSkip : loom::TileMask::kPartial;") !=
        "");
  // Of a row whose tiles are all skipped nothing is seen, as with a mask that keeps nothing.
  Json nothing = tiles_case(kSmall, kLong, "return loom::TileMask::kSkip;");
  nothing["spec"]["variant"]["logits_mask"] = "return sinks + window < 0;";
  check_wgmma(nothing);
}

TEST_CASE("skipped tiles are not even copied", "[tile_masks]") {
  if (on_cuda()) return;  // the simulator counts, a GPU does not
  const std::unique_ptr<Engine> engine = make_test_engine();
  const auto bytes = [&](const std::string& tiles) {
    const Shape shape = {{16}, {2000}, 4, 1};
    const CaseFile file = parse_or_fail(tiles_case(small(5), shape, tiles).dump());
    const Result<CaseRun> run = run_case(*engine, file, {});
    CHECK(judge_run(file, run) == "");
    return run.ok() ? run->report.counters.global_load_bytes : 0;
  };
  // Of 32 tiles the one with the first keys and three with the window are left.
  const std::uint64_t of_tile = 2 * 64 * 64 * 2;
  const std::uint64_t saved = bytes("") - bytes(kSinksAndWindowTiles);
  CHECK(saved >= 28 * of_tile);
  CHECK(saved <= 28 * of_tile * 5 / 4);  // with them their places
}

const std::vector<WgmmaMutant> kMaskMutants = {
    {"bits not waited for", kAlgorithm,
     "barrier_wait(ring.beside_full(beside_place.stage()), beside_place.parity());", ";"},
    {"bits of a stage overwritten while they are read", kGather,
     "barrier_wait(ring.beside_free(besides.stage()), besides.parity() ^ 1);", ";"},
    {"bits released by one warp for all", kRing,
     "barrier_init(beside_free(stage), 4 * kConsumers);", "barrier_init(beside_free(stage), 1);"},
    {"bits of the next token", "loom/mask.cuh", "words + (token - first_token) * kWords;",
     "words + (token - first_token + 1) * kWords;"},
    {"bits of gathered tiles not waited for", kAlgorithm,
     "barrier_wait(ring.beside_full(beside_place.stage()), beside_place.parity());", ";", 4, 5},
};

TEST_CASE("every fault of custom masks in warpgroup kernels is noticed", "[mask_faults]") {
  for (const WgmmaMutant& mutant : kMaskMutants) {
    const Shape shape = {{70, 33, 40}, {300, 205, 150}, mutant.group, 1};
    check_noticed(mutant, parse_or_fail(masked_case(small(mutant.page), shape).dump()));
  }
  const Shape shape = {{70, 33, 40}, {300, 205, 150}, 4, 1};
  check_clean(parse_or_fail(masked_case(small(16), shape).dump()));
}

const std::vector<WgmmaMutant> kTileMutants = {
    {"a tile read before it is taken", kItems,
     "barrier_wait(ring.tile_full(place.stage()), place.parity());", ";"},
    {"a tile overwritten while it is read", kRing, "barrier_init(tile_free(slot), kTileReaders);",
     "barrier_init(tile_free(slot), 1);"},
    {"one tile too few asked about", kItems, "if (position >= bounds.begin) {",
     "if (position > bounds.begin) {"},
    {"nothing taken where all is skipped", kItems, "if (skips_all) tiles.push(",
     "if (false) tiles.push("},
    {"no end told", kItems, "  tiles.push({kNoKey, TileMask::kPartial});", ""},
};

TEST_CASE("every fault of skipped tiles in warpgroup kernels is noticed", "[tile_faults]") {
  const Shape shape = {{70, 33, 40}, {500, 0, 450}, 4, 1};
  const CaseFile file = parse_or_fail(tiles_case(small(16), shape).dump());
  for (const WgmmaMutant& mutant : kTileMutants) check_noticed(mutant, file);
  check_clean(file);
}

TEST_CASE("warpgroup kernels run the shipped row functors unchanged", "[rows]") {
  for (const char* name : {"rope_neox", "rope_interleaved", "qk_norm"}) {
    check_wgmma(rows_case({}, kMixed, name));
    check_wgmma(rows_case(small(16), kMixed, name));
  }
  check_wgmma(rows_case({.qk = 96, .vo = 96, .kv_tile = 96, .dtype = "f16"}, kMixed, "rope_neox"));
  check_wgmma(rows_case({.layout = {{"kv", "padded"}}, .qk = 192}, {{70}, {333}, 2, 1}, "qk_norm"));
  check_wgmma(rows_case(small(5), {{60, 9}, {300, 411}, 3, 1}, "rope_interleaved"));
  check_wgmma(rows_case(kSmall, kLong, "streaming_llm_rope"));
}

TEST_CASE("warpgroup kernels run each row functor by itself", "[rows]") {
  check_wgmma(own_rows_case({}, kMixed, true, kQueryRows, kKeyRows, kValueRows));
  check_wgmma(own_rows_case(small(5), kMixed, false, kQueryRows, kKeyRows, kValueRows));
  check_wgmma(
      own_rows_case(kSmall, {{60, 9}, {300, 411}, 3, 1}, true, kQueryRows, nullptr, nullptr));
  check_wgmma(own_rows_case(small(16), kMixed, true, nullptr, kKeyRows, nullptr));
  check_wgmma(own_rows_case(kSmall, kMixed, false, nullptr, nullptr, kValueRows));
  for (const int page : {5, 16}) {
    Json masked = own_rows_case(small(page), kMixed, true, kQueryRows, kKeyRows, kValueRows);
    masked["spec"]["variant"]["mask"]["custom"] = true;
    add_custom_mask(masked["workload"], masked["spec"]["variant"], lengths_of(kMixed));
    check_wgmma(masked);
  }
}

const std::vector<WgmmaMutant> kRowMutants = {
    {"rewritten rows not shown to the products", kRows, "fence_async_proxy();\n    __syncwarp();",
     "__syncwarp();"},
    {"queries rewritten before they are there", kRows,
     "barrier_wait(ring.queries_landed(queries.stage()), queries.parity());", ";"},
    {"keys rewritten before they are there", kRows,
     "barrier_wait(ring.keys_landed(keys.stage()), keys.parity());", ";"},
    {"values rewritten before they are there", kRows,
     "barrier_wait(ring.values_landed(values.stage()), values.parity());", ";"},
    {"keys handed on by the first warp that is done", kRing,
     "barrier_init(keys_full(stage), kPassWarps);", "barrier_init(keys_full(stage), 1);"},
    {"the last key left as it was", kRows, "pass_keys(kept, before, bounds.end);",
     "pass_keys(kept, before, bounds.end - 1);"},
    {"values taken for those of the next tile", kRows,
     "pass_values(kept, before, bounds.end);\n        before",
     "pass_values(kept, walk.position, bounds.end);\n        before"},
    {"an item overwritten while its rows are rewritten", kRing,
     "(kGathers ? kGatherWarps : 0) + kPassWarps;", "(kGathers ? kGatherWarps : 0);"},
};

TEST_CASE("every fault of row functors in warpgroup kernels is noticed", "[row_faults]") {
  const Shape shape = {{70, 33, 40}, {300, 205, 150}, 4, 1};
  const CaseFile file =
      parse_or_fail(own_rows_case(small(16), shape, true, kQueryRows, kKeyRows, kValueRows).dump());
  for (const WgmmaMutant& mutant : kRowMutants) check_noticed(mutant, file);
  check_clean(file);
}

// Each row of blocks lists about two of three, last first, so that positions fall along the walk.
Json blocks_case(Kernel kernel, const Shape& shape, int rows, int columns, const Json& mask = {}) {
  kernel.layout = {{"kv", "bsr"}, {"block", {rows, columns}}};
  kernel.variant = {{"name", "blocks"}, {"mask", mask.is_null() ? Json::object() : mask}};
  Json indptr = {0}, indices = Json::array();
  for (std::size_t r = 0; r < shape.qo_len.size(); ++r) {
    for (int row = 0; row < shape.qo_len[r]; row += rows) {
      for (int c = (shape.kv_len[r] + columns - 1) / columns; c-- > 0;)
        if ((row / rows + c) % 3 != 0) indices.push_back(c);
      indptr.push_back(indices.size());
    }
  }
  Json workload = {{"bsr", {{"block", {rows, columns}}, {"indptr", indptr}, {"indices", indices}}}};
  add_custom_mask(workload, kernel.variant, lengths_of(shape));
  return wgmma_case(kernel, shape, {}, workload);
}

TEST_CASE("warpgroup kernels walk listed blocks", "[blocks]") {
  check_wgmma(blocks_case({}, kMixed, 32, 16));
  check_wgmma(blocks_case(kSmall, kMixed, 16, 1, {{"causal", true}}));
  check_wgmma(blocks_case({.dtype = "f16"}, {{60, 9}, {300, 411}, 3, 1}, 40, 5));
  check_wgmma(blocks_case(kSmall, {{128}, {512}}, 64, 64));  // every key exists
  check_wgmma(blocks_case(kSmall, kMixed, 64, 24, {{"causal", true}, {"window_left", 90}}));
  check_wgmma(blocks_case(kSmall, kMixed, 7, 3, {{"custom", true}}));
  check_wgmma(blocks_case({.qk = 64, .vo = 64, .q_tile = 192}, kMixed, 48, 32));
  check_wgmma(blocks_case({.qk = 256, .vo = 256, .kv_tile = 64}, {{60, 9}, {300, 411}}, 32, 16));
}

const std::vector<WgmmaMutant> kBlockMutants = {
    {"the position of the next key", kGather, "beside[first_row() + row] = rows.of[i];",
     "beside[first_row() + row] = rows.of[i] + 1;"},
    {"positions of a stage overwritten while they are read", kGather,
     "barrier_wait(ring.beside_free(besides.stage()), besides.parity() ^ 1);", ";"},
    {"keys behind the request's last", kGather, "return key < kept.request.kv_len ? key : kNoKey;",
     "return key;"},
    {"a row of the next block", kGather, "token / Config::kBlockColumns];",
     "token / Config::kBlockColumns + 1];"},
};

TEST_CASE("every fault of listed blocks in warpgroup kernels is noticed", "[block_faults]") {
  const Shape shape = {{70, 33, 40}, {300, 205, 150}, 4, 1};
  const CaseFile file =
      parse_or_fail(blocks_case(kSmall, shape, 32, 16, {{"causal", true}}).dump());
  for (const WgmmaMutant& mutant : kBlockMutants) check_noticed(mutant, file);
  check_clean(file);
}

}  // namespace attnloom::testing
