// SPDX-License-Identifier: Apache-2.0
#include "kernels/shipped.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <random>

#include "reference/generators.h"

namespace attnloom::testing {
namespace {

constexpr std::uint64_t kMaskSeed = 20261129;

std::filesystem::path specs_folder() {
  const char* folder = std::getenv("ATTNLOOM_TEST_SPECS");
  return folder != nullptr ? folder : ATTNLOOM_SPECS_DIR;
}

Json array_of(const std::string& dtype, const std::vector<double>& data) {
  Json values = Json::array();
  for (const double x : data) {
    if (dtype == "f32") {
      values.push_back(x);
    } else {
      values.push_back(static_cast<std::int64_t>(x));
    }
  }
  return {{"dtype", dtype}, {"shape", {data.size()}}, {"data", values}};
}

template <class F>
std::vector<double> list_of(int count, F&& f) {
  std::vector<double> values;
  for (int i = 0; i < count; ++i) values.push_back(f(i));
  return values;
}

// Three bits of four set, each request's own from a byte of its own.
Json mask_param(const std::string& name, const VariantUse& use) {
  std::vector<double> bytes, begin;
  for (const auto& [qo_len, kv_len] : use.lengths) {
    begin.push_back(static_cast<double>(bytes.size()));
    for (int i = 0; i < (qo_len * kv_len + 7) / 8; ++i) {
      const std::uint64_t bits = reference::random_bits(9, bytes.size());
      bytes.push_back(static_cast<double>((bits | bits >> 8) & 0xff));
    }
  }
  if (bytes.empty()) bytes.push_back(0);
  return name == "mask_bits" ? array_of("u8", bytes) : array_of("i32", begin);
}

// Node i of each tree sits below node (i - 1) / 2.
Json tree_param(const std::string& name, const VariantUse& use) {
  std::vector<double> ancestors, begin;
  for (const auto& [qo_len, kv_len] : use.lengths) {
    begin.push_back(static_cast<double>(ancestors.size()));
    std::vector<std::int64_t> sets;
    for (int i = 0; i < qo_len; ++i) {
      const std::int64_t above = i == 0 ? 0 : sets[static_cast<std::size_t>((i - 1) / 2)];
      sets.push_back(above | std::int64_t{1} << i);
      ancestors.push_back(static_cast<double>(sets.back()));
    }
  }
  return name == "ancestors" ? array_of("i32", ancestors) : array_of("i32", begin);
}

Json value_for(const std::string& name, const std::string& type, const VariantUse& use) {
  const double dim = use.dim_qk;
  if (name == "mask_bits" || name == "mask_begin") return mask_param(name, use);
  if (name == "ancestors" || name == "tree_begin") return tree_param(name, use);
  if (name == "inv_freq") {
    const auto frequency = [&](int i) { return std::pow(10000.0, -2.0 * i / dim); };
    return array_of("f32", list_of(use.dim_qk / 2, frequency));
  }
  if (name == "q_weight" || name == "k_weight") {
    const double sign = name == "q_weight" ? 1 : -1;
    return array_of("f32", list_of(use.dim_qk, [&](int i) { return 1 + sign * i / (2 * dim); }));
  }
  if (type == "ptr<f32>")  // one a head: slopes, sinks, gate
    return array_of("f32", list_of(use.q_heads, [](int h) { return 0.75 / (1 + h); }));
  const std::map<std::string, Json> scalars = {{"cap", 8.0}, {"bias", -1.0}, {"eps", 1e-5},
                                               {"sinks", 3}, {"window", 20}, {"step", 3}};
  return scalars.at(name);
}

std::vector<std::string> shipped_names(bool attention) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(specs_folder())) {
    if (entry.path().extension() != ".json") continue;
    const std::string name = entry.path().stem().string();
    if ((shipped_spec(name).at("kernel") == "attention") == attention) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

std::vector<std::string> shipped_variants() {
  return shipped_names(true);
}

std::vector<std::string> shipped_helpers() {
  return shipped_names(false);
}

Json shipped_spec(const std::string& name) {
  std::ifstream in(specs_folder() / (name + ".json"), std::ios::binary);
  INFO(name);
  REQUIRE(in.good());
  return Json::parse(std::string(std::istreambuf_iterator<char>(in), {}));
}

Json shipped_variant(const std::string& name) {
  return shipped_spec(name).at("variant");
}

void add_custom_mask(Json& workload, const Json& variant,
                     const std::vector<std::pair<int, int>>& lengths) {
  if (!variant.value("mask", Json::object()).value("custom", false)) return;
  std::mt19937_64 random(kMaskSeed);
  Json masks = Json::array();
  for (const auto& [qo, kv] : lengths) {
    Json mask = Json::array();
    for (int token = 0; token < qo; ++token) {
      Json row = Json::array();
      for (int key = 0; key < kv; ++key) row.push_back(random() % 3 == 0 ? 0 : 1);
      mask.push_back(row);
    }
    masks.push_back(mask);
  }
  workload["mask"] = {{"custom", masks}};
}

Json params_for(const Json& variant, const VariantUse& use) {
  Json params = Json::object();
  if (!variant.contains("params")) return params;
  for (const Json& param : variant.at("params")) {
    const std::string name = param.at("name");
    params[name] = value_for(name, param.at("type"), use);
  }
  return params;
}

}  // namespace attnloom::testing
