// SPDX-License-Identifier: Apache-2.0
// Specs and workloads in combination: a covering array (every pair of values of any two factors)
// against the float64 reference, on a clean simulator or a GPU. A cell that fails is printed as a
// case file that `attnloom run` takes.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "base/json.h"
#include "kernels/covering.h"
#include "kernels/kernel_rig.h"
#include "kernels/shipped.h"

namespace attnloom::testing {
namespace {

constexpr std::uint64_t kSeed = 20261129;

struct DTypesAndScale {
  const char* q;
  const char* kv;
  const char* scale;
};
const std::vector<DTypesAndScale> kDTypes = {{"f16", "f16", "none"},
                                             {"bf16", "bf16", "none"},
                                             {"bf16", "e4m3", "head"},
                                             {"f16", "e5m2", "tensor"}};
const std::vector<std::pair<int, int>> kHeadDims = {{64, 64},  {128, 128}, {128, 64}, {64, 128},
                                                    {16, 16},  {80, 80},   {96, 96},  {112, 48},
                                                    {32, 240}, {192, 128}, {256, 256}};
const std::vector<const char*> kLayouts = {R"({"kv": "ragged"})",
                                           R"({"kv": "padded"})",
                                           R"({"kv": "paged", "page_size": 1})",
                                           R"({"kv": "paged", "page_size": 5})",
                                           R"({"kv": "paged", "page_size": 16})",
                                           R"({"kv": "paged", "page_size": 24})",
                                           R"({"kv": "paged", "page_size": 256})",
                                           R"({"kv": "bsr", "block": [1, 1]})",
                                           R"({"kv": "bsr", "block": [16, 16]})",
                                           R"({"kv": "bsr", "block": [16, 1]})",
                                           R"({"kv": "bsr", "block": [5, 3]})",
                                           R"({"kv": "bsr", "block": [64, 64]})"};
const std::vector<const char*> kOrders = {"NHD", "HND"};
const std::vector<int> kGroups = {1, 2, 3, 4, 5, 7, 8, 16};
const std::vector<const char*> kTiles = {R"("auto")",
                                         R"({"q": 16, "kv": 64})",
                                         R"({"q": 16, "kv": 128})",
                                         R"({"q": 32, "kv": 32})",
                                         R"({"q": 32, "kv": 128})",
                                         R"({"q": 64, "kv": 32})",
                                         R"({"q": 64, "kv": 64})",
                                         R"({"q": 128, "kv": 32})",
                                         R"({"q": 128, "kv": 64})",
                                         R"({"q": 256, "kv": 64})",
                                         R"({"classes": [16, 128]})",
                                         R"({"classes": [32, 64]})",
                                         R"({"classes": [16, 64, 128]})"};
const std::vector<const char*> kMasks = {R"({})",
                                         R"({"causal": true})",
                                         R"({"causal": true, "window_left": 20})",
                                         R"({"window_left": 70})",
                                         R"({"causal": true, "window_left": "runtime"})",
                                         R"({"custom": true})",
                                         R"({"causal": true, "window_left": 40, "custom": true})"};
const std::vector<const char*> kFunctors = {
    // Shipped variants by name; those whose params do not fit every length are in functors_test.cc.
    "causal", "soft_cap", "alibi", "sigmoid", "bit_mask", "rope_neox", "rope_interleaved",
    "qk_norm", "streaming_llm_rope", "attention_sink", "output_gate",
    // No twin: judged by its own functors.
    R"({"name": "every_third", "params": [{"name": "step", "type": "i32"}],
        "logits_mask": "return (kv_pos + q_head) % step != 0;"})"};
const std::vector<std::vector<std::pair<int, int>>> kLengths = {
    // (query, KV) a request
    {{1, 1}, {1, 15}, {1, 16}, {1, 17}, {1, 300}, {1, 0}},
    {{63, 63}, {17, 17}},
    {{2, 129}, {5, 64}, {0, 30}, {1, 127}},
    {{130, 190}, {1, 65}, {1, 128}},
    {{16, 16}, {15, 1000}},
    {{9, 4}, {65, 65}},
};

std::vector<int> levels() {
  const auto count = [](const auto& values) { return static_cast<int>(values.size()); };
  return {count(kDTypes), count(kHeadDims), count(kLayouts),  count(kOrders), count(kGroups),
          count(kTiles),  count(kMasks),    count(kFunctors), count(kLengths)};
}

// 8-bit caches take multiples of 32.
int head_dim(int dim, const DTypesAndScale& dtypes) {
  return std::string(dtypes.scale) == "none" ? dim : (dim + 31) / 32 * 32;
}

Json variant_of(int functor, int mask) {
  const std::string text = kFunctors[static_cast<std::size_t>(functor)];
  Json variant = text[0] == '{' ? Json::parse(text) : shipped_variant(text);
  variant["mask"] = Json::parse(kMasks[static_cast<std::size_t>(mask)]);
  return variant;
}

Json inputs_of(const Json& variant, const VariantUse& use) {
  Json inputs = {{"q", {{"random", "normal"}, {"seed", 1}}},
                 {"k", {{"random", "normal"}, {"seed", 2}}},
                 {"v", {{"random", "normal"}, {"seed", 3}}}};
  const Json params = params_for(variant, use);
  if (!params.empty()) inputs["params"] = params;
  return inputs;
}

// Each request's rows list about half of its blocks, in any order; some list none.
Json random_block_rows(const Json& block, const std::vector<std::pair<int, int>>& lengths) {
  std::mt19937_64 random(kSeed);
  std::vector<int> indptr = {0};
  std::vector<int> indices;
  for (const auto& [qo, kv] : lengths) {
    for (int token = 0; token < qo; token += block[0].get<int>()) {
      std::vector<int> row;
      for (int column = 0; column * block[1].get<int>() < kv; ++column)
        if (random() % 2 == 0) row.push_back(column);
      std::shuffle(row.begin(), row.end(), random);
      indices.insert(indices.end(), row.begin(), row.end());
      indptr.push_back(static_cast<int>(indices.size()));
    }
  }
  return {{"block", block}, {"indptr", indptr}, {"indices", indices}};
}

// REQUIRES: row has one index per factor, in the order of levels().
Json case_of(const std::vector<int>& row) {
  const auto at = [&](int factor) {
    return static_cast<std::size_t>(row[static_cast<std::size_t>(factor)]);
  };
  const int group = kGroups[at(4)];
  const int kv_heads = group >= 8 ? 1 : 2;
  const Json layout = Json::parse(kLayouts[at(2)]);
  Json variant = variant_of(row[7], row[6]);
  // Rows of an 8-bit cache have no room for what a transform makes of them: 16 bits then.
  const bool rewrites = variant.contains("key_transform") || variant.contains("value_transform");
  const DTypesAndScale& dtypes = kDTypes[rewrites ? at(0) % 2 : at(0)];
  variant["kv_scale"] = dtypes.scale;
  Json qo_len = Json::array();
  Json kv_len = Json::array();
  for (const auto& [qo, kv] : kLengths[at(8)]) {
    qo_len.push_back(qo);
    kv_len.push_back(kv);
  }
  Json workload = {{"heads", {{"q", group * kv_heads}, {"kv", kv_heads}}},
                   {"qo_len", qo_len},
                   {"kv_len", kv_len},
                   {"kv_order", kOrders[at(3)]}};
  if (variant["mask"].value("window_left", Json()) == "runtime") workload["window_left"] = 33;
  if (layout["kv"] == "bsr") workload["bsr"] = random_block_rows(layout["block"], kLengths[at(8)]);
  add_custom_mask(workload, variant, kLengths[at(8)]);
  if (variant["kv_scale"] != "none") {
    workload["k_scale"] =
        variant["kv_scale"] == "head" ? Json(std::vector<double>(kv_heads, 0.8)) : Json(1.25);
    workload["v_scale"] = 0.3;
  }
  return {{"case", 1},
          {"spec",
           {{"attnloom", 1},
            {"kernel", "attention"},
            {"dtype", {{"q", dtypes.q}, {"kv", dtypes.kv}, {"o", dtypes.q}}},
            {"head_dim",
             {{"qk", head_dim(kHeadDims[at(1)].first, dtypes)},
              {"vo", head_dim(kHeadDims[at(1)].second, dtypes)}}},
            {"group_size", group},
            {"layout", layout},
            {"tile", Json::parse(kTiles[at(5)])},
            {"variant", variant}}},
          {"workload", workload},
          {"inputs", inputs_of(variant, {.q_heads = group * kv_heads,
                                         .dim_qk = kHeadDims[at(1)].first,
                                         .lengths = kLengths[at(8)]})}};
}

// False where it was refused: a named tile may not fit a head dim, but nothing else is an answer.
bool judge_row(Engine& engine, const std::vector<int>& row) {
  const std::string text = case_of(row).dump();
  INFO(text);
  const CaseFile file = parse_or_fail(text, kSeed);
  const Result<CaseRun> run = run_case(engine, file);
  if (!run.ok() && run.status().path == "$.tile") return false;
  CHECK(judge_run(file, run) == "");
  return true;
}

void run_rows(const std::vector<std::vector<int>>& rows) {
  const std::unique_ptr<Engine> engine = make_test_engine(kSeed);
  int refused = 0;
  for (const std::vector<int>& row : rows) refused += judge_row(*engine, row) ? 0 : 1;
  CHECK(refused * 10 <= static_cast<int>(rows.size()));
}

// The whole product of the factors that choose code (dtypes, head dims, layouts, tiles, functors);
// the others are drawn for each cell. Cells are numbered so that every range of them is spread over
// all factors.
struct Product {
  static constexpr int kFactors[] = {0, 1, 2, 5, 7};
  static constexpr std::int64_t kStep = 48271;  // a prime: no factor of any count of cells here

  static std::int64_t size() {
    std::int64_t cells = 1;
    for (const int factor : kFactors) cells *= levels()[static_cast<std::size_t>(factor)];
    return cells;
  }
  static std::vector<int> row(std::int64_t cell) {
    std::vector<int> row =
        random_rows(levels(), 1, kSeed + 2 + static_cast<std::uint64_t>(cell)).front();
    std::int64_t rest = cell * kStep % size();
    for (const int factor : kFactors) {
      const int count = levels()[static_cast<std::size_t>(factor)];
      row[static_cast<std::size_t>(factor)] = static_cast<int>(rest % count);
      rest /= count;
    }
    return row;
  }
};

// Every third row of the covering array, from `first` on: three programs' worth of work.
void run_pairs(std::size_t first) {
  const std::vector<std::vector<int>> rows = pairwise_rows(levels(), kSeed);
  std::vector<std::vector<int>> part;
  for (std::size_t i = first; i < rows.size(); i += 3) part.push_back(rows[i]);
  WARN(part.size() << " of " << rows.size() << " cells, seed " << kSeed);
  run_rows(part);
}

}  // namespace

TEST_CASE("a covering array of specs and workloads agrees with the reference, a", "[pairs_a]") {
  run_pairs(0);
}

TEST_CASE("a covering array of specs and workloads agrees with the reference, b", "[pairs_b]") {
  run_pairs(1);
}

TEST_CASE("a covering array of specs and workloads agrees with the reference, c", "[pairs_c]") {
  run_pairs(2);
}

TEST_CASE("random cells agree with the reference", "[random]") {
  run_rows(random_rows(levels(), 30, kSeed + 1));
}

// Not of the suite: tools/full_sweep.py runs it, a range of cells "BEGIN:END" at a time.
TEST_CASE("the product of specs agrees with the reference", "[.full]") {
  const char* range = std::getenv("ATTNLOOM_SWEEP_CELLS");
  long long begin = 0, end = 0;
  REQUIRE(range != nullptr);
  REQUIRE(std::sscanf(range, "%lld:%lld", &begin, &end) == 2);
  REQUIRE((0 <= begin && begin <= end && end <= Product::size()));
  const std::unique_ptr<Engine> engine = make_test_engine(kSeed);
  long long refused = 0;
  for (long long cell = begin; cell < end; ++cell) {
    INFO("again: ATTNLOOM_SWEEP_CELLS=" << cell << ":" << cell + 1
                                        << " build/tests/kernels/sweep_test '[full]'");
    refused += judge_row(*engine, Product::row(cell)) ? 0 : 1;
  }
  std::printf("cells %lld:%lld of %lld, %lld refused\n", begin, end,
              static_cast<long long>(Product::size()), refused);
}

}  // namespace attnloom::testing
