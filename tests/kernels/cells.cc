// SPDX-License-Identifier: Apache-2.0
#include "kernels/cells.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>

#include "kernels/kernel_rig.h"
#include "kernels/shipped.h"

namespace attnloom::testing {
namespace {

// 8-bit caches take multiples of 32.
int head_dim(int dim, const DTypesAndScale& dtypes) {
  return std::string(dtypes.scale) == "none" ? dim : (dim + 31) / 32 * 32;
}

Json variant_of(const std::string& text, const std::string& mask) {
  Json variant = text[0] == '{' ? Json::parse(text) : shipped_variant(text);
  variant["mask"] = Json::parse(mask);
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
Json random_block_rows(const Json& block, const std::vector<std::pair<int, int>>& lengths,
                       std::uint64_t seed) {
  std::mt19937_64 random(seed);
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

}  // namespace

Factors common_factors() {
  Factors factors;
  factors.dtypes = {{"f16", "f16", "none"},
                    {"bf16", "bf16", "none"},
                    {"bf16", "e4m3", "head"},
                    {"f16", "e5m2", "tensor"}};
  factors.head_dims = {{64, 64}, {128, 128}, {128, 64}, {64, 128},  {16, 16},  {80, 80},
                       {96, 96}, {112, 48},  {32, 240}, {192, 128}, {256, 256}};
  factors.layouts = {R"({"kv": "ragged"})",
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
  factors.orders = {"NHD", "HND"};
  factors.groups = {1, 2, 3, 4, 5, 7, 8, 16};
  factors.tiles = {R"("auto")",
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
  factors.masks = {R"({})",
                   R"({"causal": true})",
                   R"({"causal": true, "window_left": 20})",
                   R"({"window_left": 70})",
                   R"({"causal": true, "window_left": "runtime"})",
                   R"({"custom": true})",
                   R"({"causal": true, "window_left": 40, "custom": true})"};
  factors.functors = {// Shipped variants by name; those whose params do not fit every length are in
                      // functors_test.cc.
                      "causal", "soft_cap", "alibi", "sigmoid", "bit_mask", "rope_neox",
                      "rope_interleaved", "qk_norm", "streaming_llm_rope", "attention_sink",
                      "output_gate",
                      // No twin: judged by its own functors.
                      R"({"name": "every_third", "params": [{"name": "step", "type": "i32"}],
          "logits_mask": "return (kv_pos + q_head) % step != 0;"})"};
  factors.lengths = {
      {{1, 1}, {1, 15}, {1, 16}, {1, 17}, {1, 300}, {1, 0}},
      {{63, 63}, {17, 17}},
      {{2, 129}, {5, 64}, {0, 30}, {1, 127}},
      {{130, 190}, {1, 65}, {1, 128}},
      {{16, 16}, {15, 1000}},
      {{9, 4}, {65, 65}},
  };
  return factors;
}

std::vector<int> levels(const Factors& f) {
  const auto count = [](const auto& values) { return static_cast<int>(values.size()); };
  return {count(f.dtypes), count(f.head_dims), count(f.layouts),  count(f.orders), count(f.groups),
          count(f.tiles),  count(f.masks),     count(f.functors), count(f.lengths)};
}

Json cell_case(const Factors& factors, const std::vector<int>& row, std::uint64_t seed) {
  const auto at = [&](int factor) {
    return static_cast<std::size_t>(row[static_cast<std::size_t>(factor)]);
  };
  const int group = factors.groups[at(4)];
  const std::vector<std::pair<int, int>>& lengths = factors.lengths[at(8)];
  const int kv_heads = group >= 8 ? 1 : 2;
  const Json layout = Json::parse(factors.layouts[at(2)]);
  Json variant = variant_of(factors.functors[at(7)], factors.masks[at(6)]);
  // Rows of an 8-bit cache have no room for what a transform makes of them: 16 bits then.
  const bool rewrites = variant.contains("key_transform") || variant.contains("value_transform");
  const DTypesAndScale& dtypes = factors.dtypes[rewrites ? at(0) % 2 : at(0)];
  variant["kv_scale"] = dtypes.scale;
  Json qo_len = Json::array();
  Json kv_len = Json::array();
  for (const auto& [qo, kv] : lengths) {
    qo_len.push_back(qo);
    kv_len.push_back(kv);
  }
  Json workload = {{"heads", {{"q", group * kv_heads}, {"kv", kv_heads}}},
                   {"qo_len", qo_len},
                   {"kv_len", kv_len},
                   {"kv_order", factors.orders[at(3)]}};
  if (variant["mask"].value("window_left", Json()) == "runtime") workload["window_left"] = 33;
  if (layout["kv"] == "bsr") workload["bsr"] = random_block_rows(layout["block"], lengths, seed);
  add_custom_mask(workload, variant, lengths);
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
             {{"qk", head_dim(factors.head_dims[at(1)].first, dtypes)},
              {"vo", head_dim(factors.head_dims[at(1)].second, dtypes)}}},
            {"group_size", group},
            {"layout", layout},
            {"tile", Json::parse(factors.tiles[at(5)])},
            {"variant", variant}}},
          {"workload", workload},
          {"inputs", inputs_of(variant, {.q_heads = group * kv_heads,
                                         .dim_qk = factors.head_dims[at(1)].first,
                                         .lengths = lengths})}};
}

bool judge_cell(Engine& engine, const Factors& factors, const std::vector<int>& row,
                std::uint64_t seed) {
  const std::string text = cell_case(factors, row, seed).dump();
  INFO(text);
  const CaseFile file = parse_or_fail(text, seed);
  const Result<CaseRun> run = run_case(engine, file);
  if (!run.ok() && run.status().path == "$.tile") return false;
  CHECK(judge_run(file, run) == "");
  return true;
}

void run_cells(const Factors& factors, const std::vector<std::vector<int>>& rows,
               std::uint64_t seed) {
  const std::unique_ptr<Engine> engine = make_test_engine(seed);
  int refused = 0;
  for (const std::vector<int>& row : rows)
    refused += judge_cell(*engine, factors, row, seed) ? 0 : 1;
  CHECK(refused * 10 <= static_cast<int>(rows.size()));
}

}  // namespace attnloom::testing
