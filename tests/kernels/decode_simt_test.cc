// SPDX-License-Identifier: Apache-2.0
// decode_simt (query tile 1): right in every combination against the float64 reference, chosen
// where it should be, and no work that it need not do.
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cells.h"
#include "kernels/covering.h"
#include "kernels/kernel_rig.h"

namespace attnloom::testing {
namespace {

constexpr std::uint64_t kSeed = 20270206;

Factors decode_factors() {
  Factors factors = common_factors();
  // Slabs and tails of every kind under eight lanes, and beyond 256 dims under sixteen: where a
  // chunk of one lane lies in a slab and of its neighbour in the tail (272, 336), and whole slabs
  // (512).
  factors.head_dims = {{64, 64},  {128, 128}, {128, 64},  {16, 16},   {80, 80},
                       {112, 48}, {32, 240},  {192, 128}, {256, 256}, {272, 272},
                       {336, 96}, {48, 320},  {512, 512}};
  factors.tiles = {R"({"q": 1, "kv": 16})", R"({"q": 1, "kv": 32})", R"({"q": 1, "kv": 64})"};
  factors.groups = {1, 2, 3, 5, 8};
  factors.lengths = {{{1, 1}, {1, 15}, {1, 16}, {1, 17}, {1, 300}, {1, 0}},
                     {{2, 129}, {5, 64}, {0, 30}, {1, 127}},
                     {{1, 1500}},
                     {{9, 4}, {1, 65}}};
  return factors;
}

Json decode_case(int group, std::vector<int> qo_len, std::vector<int> kv_len) {
  return {{"case", 1},
          {"spec",
           {{"attnloom", 1},
            {"kernel", "attention"},
            {"dtype", {{"q", "bf16"}, {"kv", "bf16"}, {"o", "bf16"}}},
            {"head_dim", {{"qk", 128}, {"vo", 128}}},
            {"group_size", group},
            {"layout", {{"kv", "paged"}, {"page_size", 16}}},
            {"variant", {{"name", "plain"}, {"mask", {{"causal", true}}}}}}},
          {"workload",
           {{"heads", {{"q", 2 * group}, {"kv", 2}}}, {"qo_len", qo_len}, {"kv_len", kv_len}}},
          {"inputs",
           {{"q", {{"random", "normal"}, {"seed", 1}}},
            {"k", {{"random", "normal"}, {"seed", 2}}},
            {"v", {{"random", "normal"}, {"seed", 3}}}}}};
}

// The query tiles of the kernel that a batch got, and its family.
std::string kernel_of(Engine& engine, const Json& json) {
  const CaseFile file = parse_or_fail(json.dump());
  const Result<CaseRun> run = run_case(engine, file);
  CHECK(judge_run(file, run) == "");
  REQUIRE(run.ok());
  const KernelChoice choice = run->kernels->acquired(run->kernel)->choice;
  std::string text = choice.family;
  for (const TileClass& tile : choice.classes) text += " " + std::to_string(tile.q);
  return text;
}

void run_pairs(CoveringPart covering) {
  const Factors factors = decode_factors();
  const std::vector<std::vector<int>> rows = pairwise_rows(levels(factors), kSeed);
  const std::vector<std::vector<int>> part = part_of(rows, covering);
  WARN(part.size() << " of " << rows.size() << " cells, seed " << kSeed);
  run_cells(factors, part, kSeed);
}

}  // namespace

TEST_CASE("query tile 1 agrees with the reference in a covering array, a", "[pairs_a]") {
  run_pairs(CoveringPart::kNinth);
}

TEST_CASE("query tile 1 agrees with the reference in a covering array, b", "[pairs_b]") {
  run_pairs(CoveringPart::kEven);
}

TEST_CASE("query tile 1 agrees with the reference in a covering array, c", "[pairs_c]") {
  run_pairs(CoveringPart::kOdd);
}

TEST_CASE("a batch of one packed row each gets query tile 1", "[rules]") {
  const std::unique_ptr<Engine> engine = make_test_engine(kSeed);
  CHECK(kernel_of(*engine, decode_case(1, {1, 1, 0}, {70, 203, 9})) == "decode_simt 1");
  CHECK(kernel_of(*engine, decode_case(1, {1, 7}, {70, 203})) == "attention_mma 16");
  CHECK(kernel_of(*engine, decode_case(1, {1, 150}, {70, 203})) == "attention_wgmma 128");
  CHECK(kernel_of(*engine, decode_case(2, {1, 1}, {70, 203})) == "attention_mma 16");
  Json wide = decode_case(2, {1, 9}, {70, 33});
  wide["spec"]["head_dim"] = {{"qk", 288}, {"vo", 288}};
  CHECK(kernel_of(*engine, wide) == "decode_simt 1");
}

TEST_CASE("query tile 1 reads keys and values once, without a bank conflict", "[rules]") {
  if (on_cuda()) return;
  // Not the product: what 512 dims cost here is most of this test's time.
  const auto [kv, page, dim] = GENERATE(table<std::string, int, int>({{"bf16", 1, 64},
                                                                      {"bf16", 1, 80},
                                                                      {"bf16", 1, 128},
                                                                      {"bf16", 16, 128},
                                                                      {"bf16", 16, 512},
                                                                      {"e4m3", 1, 128},
                                                                      {"e4m3", 16, 64},
                                                                      {"e4m3", 1, 512}}));
  CAPTURE(kv, page, dim);
  constexpr int kHeads = 396;  // as many as CTAs: nothing is split
  const std::unique_ptr<Engine> engine = make_test_engine();
  std::uint64_t conflicts = 0;
  for (const int tokens : {128, 256}) {
    Json json = decode_case(1, {1}, {tokens});
    json["spec"]["dtype"]["kv"] = kv;
    json["spec"]["head_dim"] = {{"qk", dim}, {"vo", dim}};
    json["spec"]["layout"]["page_size"] = page;
    json["workload"]["heads"] = {{"q", kHeads}, {"kv", kHeads}};
    for (const char* name : {"q", "k", "v"}) json["inputs"][name] = 0;
    const Result<CaseRun> run = run_case(*engine, parse_or_fail(json.dump()));
    INFO(run.status().to_string());
    REQUIRE(run.ok());
    CHECK(run->report.findings.empty());
    CHECK(run->kernels->acquired(run->kernel)->choice.family == "decode_simt");
    CHECK(run->figures.split_tiles == 0);
    const sim::Counters& c = run->report.counters;
    const double kv_bytes = 2.0 * kHeads * tokens * dim * (kv == "bf16" ? 2 : 1);
    const double index_bytes = 4.0 * kHeads * tokens / page;
    // Beside keys, values and indices: the query, and what is read of the plan.
    const double fetched = 32.0 * static_cast<double>(c.global_fetch_sectors);
    INFO(fetched / kv_bytes << " bytes a byte, of which indices " << index_bytes / kv_bytes);
    CHECK(fetched >= kv_bytes);
    CHECK(fetched <= 1.02 * kv_bytes + index_bytes);
    CHECK(c.mma == 0);
    CHECK(c.copy_conflicts == 0);
    CHECK(c.spill_bytes == 0);
    // The epilogue has some; twice the keys must not add any.
    if (tokens == 256) CHECK(c.shared_conflicts == conflicts);
    conflicts = c.shared_conflicts;
  }
}

}  // namespace attnloom::testing
