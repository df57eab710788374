// SPDX-License-Identifier: Apache-2.0
#include "kernels/wgmma_cases.h"

#include <catch2/catch.hpp>

namespace attnloom::testing {
namespace {

constexpr int kSeeds = 5;  // orders of warps

Json inputs(const Json& params) {
  Json all = {{"q", {{"random", "normal"}, {"seed", 1}}},
              {"k", {{"random", "normal"}, {"seed", 2}}},
              {"v", {{"random", "normal"}, {"seed", 3}}}};
  if (!params.empty()) all["params"] = params;
  return all;
}

}  // namespace

Json wgmma_case(const Kernel& kernel, const Shape& shape, const Json& params,
                const Json& workload) {
  Json json;
  json["case"] = 1;
  json["spec"] = {
      {"attnloom", 1},
      {"kernel", "attention"},
      {"dtype", {{"q", kernel.dtype}, {"kv", kernel.dtype}, {"o", kernel.dtype}}},
      {"head_dim", {{"qk", kernel.qk}, {"vo", kernel.vo}}},
      {"group_size", shape.group},
      {"layout", kernel.layout},
      {"tile", {{"q", kernel.q_tile}, {"kv", kernel.kv_tile}, {"family", "attention_wgmma"}}},
      {"variant", kernel.variant}};
  json["workload"] = {{"heads", {{"q", shape.group * shape.kv_heads}, {"kv", shape.kv_heads}}},
                      {"qo_len", shape.qo_len},
                      {"kv_len", shape.kv_len}};
  if (!workload.empty()) json["workload"].update(workload);
  json["inputs"] = inputs(params);
  return json;
}

Json variant(const char* name, bool causal, const Json& more) {
  Json json = {{"name", name}, {"mask", {{"causal", causal}}}};
  if (!more.empty()) json.merge_patch(more);
  return json;
}

Json paged(int page_size) {
  return {{"kv", "paged"}, {"page_size", page_size}};
}

std::string judge_wgmma(Engine& engine, const CaseFile& file, int sm_count, int launches) {
  RunOptions options{.launches = launches};
  options.limits.sm_count = sm_count;
  return judge_run(file, run_case(engine, file, options));
}

void check_wgmma(const Json& json) {
  const std::unique_ptr<Engine> engine = make_test_engine();
  INFO(json["spec"].dump());
  const CaseFile file = parse_or_fail(json.dump());
  CHECK(judge_wgmma(*engine, file, 0) == "");
  CHECK(judge_wgmma(*engine, file, 2) == "");
}

void check_noticed(const WgmmaMutant& mutant, const CaseFile& file) {
  for (int seed = 0; seed < kSeeds; ++seed) {
    INFO(mutant.name << ", seed " << seed);
    const std::unique_ptr<Engine> engine = make_edited_engine(
        seed, [&](Source& source) { replace_once(source, mutant.header, mutant.from, mutant.to); });
    CHECK(judge_wgmma(*engine, file, 1) != "");
  }
}

void check_clean(const CaseFile& file) {
  for (int seed = 0; seed < 4 * kSeeds; ++seed) {
    INFO("seed " << seed);
    const std::unique_ptr<Engine> engine = make_edited_engine(seed, [](Source&) {});
    CHECK(judge_wgmma(*engine, file, 1, 2) == "");
  }
}

}  // namespace attnloom::testing
