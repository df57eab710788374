// SPDX-License-Identifier: Apache-2.0
#include "kernels/target_specs.h"

#include "kernels/shipped.h"

namespace attnloom::testing {
namespace {

constexpr int kGroup = 4;
constexpr int kKvHeads = 2;

Json attention_spec(const std::string& q, const std::string& kv, int qk, int vo, Json variant) {
  return {{"attnloom", 1},
          {"kernel", "attention"},
          {"dtype", {{"q", q}, {"kv", kv}, {"o", q}}},
          {"head_dim", {{"qk", qk}, {"vo", vo}}},
          {"group_size", kGroup},
          {"layout", {{"kv", "paged"}, {"page_size", 16}}},
          {"variant", std::move(variant)}};
}

struct Cell {
  int qk;
  int vo;
  const char* q;
  const char* kv;
};
// 128 in bf16 is the shipped "causal".
constexpr Cell kCells[] = {
    {64, 64, "bf16", "bf16"},   {80, 80, "bf16", "bf16"},   {192, 128, "bf16", "bf16"},
    {256, 256, "bf16", "bf16"}, {128, 128, "f16", "f16"},   {64, 64, "bf16", "e4m3"},
    {128, 128, "bf16", "e4m3"}, {256, 256, "bf16", "e4m3"}, {128, 128, "f16", "e5m2"},
    {512, 512, "bf16", "bf16"},
};

}  // namespace

std::vector<TargetSpec> target_specs() {
  std::vector<TargetSpec> specs;
  for (const std::string& name : shipped_variants())
    specs.push_back({name, attention_spec("bf16", "bf16", 128, 128, shipped_variant(name))});
  for (const Cell& cell : kCells) {
    std::string dim = std::to_string(cell.qk);
    if (cell.vo != cell.qk) dim += "/" + std::to_string(cell.vo);
    specs.push_back({"causal d" + dim + " " + cell.kv,
                     attention_spec(cell.q, cell.kv, cell.qk, cell.vo, shipped_variant("causal"))});
  }
  return specs;
}

std::vector<TargetSpec> helper_specs() {
  std::vector<TargetSpec> specs = {{"merge",
                                    {{"attnloom", 1},
                                     {"kernel", "merge"},
                                     {"dtype", {{"o", "bf16"}}},
                                     {"head_dim", {{"vo", 128}}}}}};
  for (const std::string& name : shipped_helpers()) {
    Json spec = shipped_spec(name);
    spec.erase("target");
    specs.push_back({name, spec});
  }
  return specs;
}

std::vector<std::vector<std::pair<int, int>>> batches_of_every_class() {
  return {{{1, 150}, {3, 20}, {1, 0}, {2, 5}},  // at most 16 packed rows a request
          {{8, 70}},
          {{16, 16}, {13, 90}},
          {{24, 130}},
          {{1, 100}, {31, 40}, {0, 9}}};
}

Json case_for_target(const Json& spec, const std::string& target,
                     const std::vector<std::pair<int, int>>& lengths) {
  Json named = spec;
  named["target"] = target;
  Json qo_len = Json::array(), kv_len = Json::array();
  for (const auto& [qo, kv] : lengths) {
    qo_len.push_back(qo);
    kv_len.push_back(kv);
  }
  Json inputs;
  for (const char* name : {"q", "k", "v"}) inputs[name] = {{"random", "normal"}, {"seed", name[0]}};
  const Json params = params_for(
      spec["variant"],
      {.q_heads = kGroup * kKvHeads, .dim_qk = spec["head_dim"]["qk"], .lengths = lengths});
  if (!params.empty()) inputs["params"] = params;
  Json workload = {{"heads", {{"q", kGroup * kKvHeads}, {"kv", kKvHeads}}},
                   {"qo_len", qo_len},
                   {"kv_len", kv_len}};
  add_custom_mask(workload, spec["variant"], lengths);
  return {{"case", 1}, {"spec", named}, {"workload", workload}, {"inputs", inputs}};
}

}  // namespace attnloom::testing
