// SPDX-License-Identifier: Apache-2.0
// The time that the cost model gives the planner's own rows on an H200, beside what was measured
// (bench/results; plans by the model and by Algorithm 1's costs took the same time within 1 %).
#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <map>
#include <string>

#include "base/json.h"
#include "shared_fixture.h"
#include "spec/parse.h"
#include "spec/tiles.h"

namespace attnloom {
namespace {

using test::Batch;

constexpr int kPageSize = 16;
constexpr double kTokenBytes = 8 * 2 * 128 * 2;  // keys and values of 8 heads, bf16

struct Row {
  Batch batch;
  double bytes = 0;  // that a launch has to read
};

Row decode(const std::vector<int>& lengths) {
  Row row;
  for (const int length : lengths) {
    row.batch.add_paged(1, length, kPageSize);
    row.bytes += length * kTokenBytes;
  }
  return row;
}

// As bench/rows.py's skewed(), in another order.
Row zipf(int requests, int mean) {
  double sum = 0;
  for (int i = 0; i < requests; ++i) sum += 1 / std::pow(i + 1, 1.1);
  std::vector<int> lengths;
  for (int i = 0; i < requests; ++i)
    lengths.push_back(
        std::max(1, static_cast<int>(1 / std::pow(i + 1, 1.1) / sum * mean * requests)));
  return decode(lengths);
}

Row one_long(int length, int others, int short_length) {
  std::vector<int> lengths(static_cast<std::size_t>(others), short_length);
  lengths.push_back(length);
  return decode(lengths);
}

Row cascade(int prefix, int requests, int own) {
  Row row;
  std::vector<std::int32_t> pages;
  for (int r = 0; r < requests; ++r) {
    pages.clear();
    for (int p = 0; p < prefix / kPageSize; ++p) pages.push_back(p);
    for (int p = 0; p < own / kPageSize; ++p) pages.push_back((prefix + r * own) / kPageSize + p);
    test::add_row(row.batch, pages, 1, kPageSize);
  }
  row.bytes = (prefix + 1.0 * requests * own) * kTokenBytes;
  return row;
}

// GB/s of ours by row; the later of two files counts.
std::map<std::string, double> measured() {
  std::map<std::string, double> rates;
  std::ifstream file(ATTNLOOM_H200_RESULTS);
  for (std::string line; std::getline(file, line);) {
    const Json row = Json::parse(line);
    if (row["issue"] == "D") rates[row["row"]] = row["ours"];
  }
  return rates;
}

constexpr const char* kSpec = R"({"attnloom": 1, "kernel": "attention", "target": "sm_90a",
  "task": "decode", "dtype": {"q": "bf16", "kv": "bf16", "o": "bf16"},
  "head_dim": {"qk": 128, "vo": 128}, "group_size": 4, "tile": "auto",
  "layout": {"kv": "paged", "page_size": 16},
  "variant": {"name": "plain", "mask": {"causal": true}}})";

TEST_CASE("the cost model's time is within a tenth of the measured one") {
  const std::map<std::string, Row> rows = {
      {"decode_zipf_128x4096_wrapper", zipf(128, 4096)},
      {"decode_34x8192_wrapper", decode(std::vector<int>(34, 8192))},
      {"decode_1x131072_63x2048_wrapper", one_long(131072, 63, 2048)},
      {"cascade_8192_128x256", cascade(8192, 128, 256)},
      {"cascade_32768_64x512", cascade(32768, 64, 512)},
      {"cascade_2048_256x256", cascade(2048, 256, 256)}};
  const std::map<std::string, double> rates = measured();
  const Result<ParsedSpec> spec = parse_spec(kSpec);
  REQUIRE(spec.ok());
  const CostModel model{.profile = &kH200Profile};
  for (const auto& [name, row] : rows) {
    INFO(name);
    REQUIRE(rates.count(name) == 1);
    Batch batch = row.batch;
    batch.kv_heads = 8;
    batch.group_size = 4;
    PlanLimits limits = batch.limits(132);
    limits.share_prefixes = true;
    const Result<Plan> plan =
        make_plan(spec->spec, *kernel_set(spec->spec), limits, batch.view(), 1, model);
    INFO(plan.status().to_string());
    REQUIRE(plan.ok());
    const double ns = plan->figures.makespan + kH200Profile.launch_ns;
    const double measured_ns = row.bytes / rates.at(name);
    INFO(ns / 1e3 << " us of the model, " << measured_ns / 1e3 << " us measured");
    CHECK(std::abs(ns / measured_ns - 1) <= 0.1);
  }
}

}  // namespace
}  // namespace attnloom
