// SPDX-License-Identifier: Apache-2.0
// What the kernels cost, in counts of the simulated device: keys and values are read once, the main
// loop (copies into shared memory, ldmatrix) has no bank conflict, and every mma belongs to a tile
// that has a live key.
#include <catch2/catch.hpp>

#include "kernels/kernel_rig.h"

namespace attnloom::testing {
namespace {

constexpr int kDim = 128;

struct Batch {
  std::string task;
  int kv_heads = 1;
  int group = 4;
  int page = 0;  // 0: ragged
  std::int64_t qo_len = 1;
  std::int64_t kv_len = 0;
  std::int64_t window_left = -1;
  std::string tile = R"("auto")";
  std::string kv = "bf16";
};

std::string case_text(const Batch& b) {
  const std::string layout =
      b.page == 0 ? R"({"kv": "ragged"})"
                  : R"({"kv": "paged", "page_size": )" + std::to_string(b.page) + "}";
  return R"({"case": 1, "spec": {"attnloom": 1, "kernel": "attention", "task": ")" + b.task +
         R"(", "dtype": {"q": "bf16", "kv": ")" + b.kv +
         R"(", "o": "bf16"}, "head_dim": {"qk": 128, "vo": 128}, "group_size": )" +
         std::to_string(b.group) + R"(, "layout": )" + layout + R"(, "tile": )" + b.tile +
         R"(, "variant": {"name": "counted", "mask": {"causal": true, "window_left": )" +
         std::to_string(b.window_left) + R"(}}}, "workload": {"heads": {"q": )" +
         std::to_string(b.kv_heads * b.group) + R"(, "kv": )" + std::to_string(b.kv_heads) +
         R"(}, "qo_len": [)" + std::to_string(b.qo_len) + R"(], "kv_len": [)" +
         std::to_string(b.kv_len) + R"(]}, "inputs": {"q": 0, "k": 0, "v": 0}})";
}

CaseRun run(const Batch& batch) {
  const auto engine = make_test_engine();
  Result<CaseRun> result = run_case(*engine, parse_or_fail(case_text(batch)));
  INFO(result.status().to_string());
  REQUIRE(result.ok());
  CHECK(result->report.findings.empty());
  return std::move(result).value();
}

// KV tiles with a key that some row of their query tile sees, times the products of one tile: every
// 16 rows of the query tile take kKv/8 x kDim/16 mma for the logits and kDim/8 x kKv/16 for the
// values. Rows of a query tile are packed, token * group + head.
std::uint64_t mma_formula(const Batch& b, const TileClass& tile) {
  std::int64_t tiles = 0;
  const std::int64_t rows = b.qo_len * b.group, first_position = b.kv_len - b.qo_len;
  for (std::int64_t row = 0; row < rows; row += tile.q) {
    const std::int64_t first_token = row / b.group;
    const std::int64_t last_token = std::min(row + tile.q, rows) - 1;
    const std::int64_t end = first_position + last_token / b.group + 1;
    std::int64_t begin = 0;
    if (b.window_left >= 0)
      begin = std::max<std::int64_t>(first_position + first_token - b.window_left, 0);
    tiles += (end + tile.kv - 1) / tile.kv - begin / tile.kv;
  }
  const int of_tile = tile.q / 16 * (tile.kv / 8 * (kDim / 16) + kDim / 8 * (tile.kv / 16));
  return static_cast<std::uint64_t>(tiles * of_tile * b.kv_heads);
}

void check_main_loop(const Batch& batch, const CaseRun& run) {
  const KernelChoice choice = run.kernels->acquired(run.kernel)->choice;
  REQUIRE(choice.classes.size() == 1);
  const sim::Counters& c = run.report.counters;
  CHECK(c.mma == mma_formula(batch, choice.classes[0]));
  CHECK(c.ldmatrix_conflicts == 0);
  CHECK(c.copy_conflicts == 0);
  CHECK(c.spill_bytes == 0);
}

// Written once and read once by whoever merges: what a split costs and no whole tile does.
double state_bytes(const Batch& batch, const CaseRun& run) {
  if (run.figures.split_tiles == 0) return 0;
  return static_cast<double>(run.figures.items * batch.group * (kDim + 1)) * sizeof(float);
}

TEST_CASE("Decode reads each key and value once: 1.02 bytes a byte, page indices and states") {
  if (on_cuda()) return;
  const int page = GENERATE(1, 16);
  // As many heads as CTAs, so that no tile is split; and few heads, all of them split.
  const Batch whole{.task = "decode", .kv_heads = 528, .page = page, .kv_len = 256};
  const Batch split{.task = "decode", .kv_heads = 4, .page = page, .kv_len = 32768};
  Batch quantised = whole;
  quantised.kv = "e4m3";
  // One head for all CTAs: most have no work, as shorter items would read more than keys.
  const Batch alone{.task = "decode", .kv_heads = 1, .page = page, .kv_len = 4096};
  for (const Batch& batch : {whole, split, quantised, alone}) {
    const CaseRun result = run(batch);
    CHECK(result.figures.split_tiles == (batch.kv_heads <= 4 ? batch.kv_heads : 0));
    const double kv_bytes = static_cast<double>(batch.kv_heads * batch.kv_len * 2 * kDim *
                                                (batch.kv == "bf16" ? 2 : 1));
    const double index_bytes =
        4.0 * static_cast<double>(batch.kv_heads * (batch.kv_len / batch.page));
    const double fetched = 32.0 * static_cast<double>(result.report.counters.global_fetch_sectors);
    INFO(batch.kv_heads << " heads, pages of " << page << ": " << fetched / kv_bytes
                        << " bytes a byte, of which indices " << index_bytes / kv_bytes);
    CHECK(fetched >= kv_bytes);
    CHECK(fetched <= 1.02 * kv_bytes + index_bytes + state_bytes(batch, result));
    CHECK(state_bytes(batch, result) <= 0.03 * kv_bytes);
    check_main_loop(batch, result);
  }
}

TEST_CASE("8-bit keys and values pass shared memory without a bank conflict, too") {
  if (on_cuda()) return;
  const std::string tile = GENERATE(R"({"q": 16, "kv": 128})", R"({"q": 128, "kv": 32})");
  const Batch batch{.task = "prefill",
                    .kv_heads = 2,
                    .page = 16,
                    .qo_len = 100,
                    .kv_len = 300,
                    .tile = tile,
                    .kv = "e4m3"};
  INFO(tile);
  check_main_loop(batch, run(batch));
}

TEST_CASE("Prefill multiplies live tiles only, without a bank conflict") {
  if (on_cuda()) return;
  const std::string tile =
      GENERATE(R"({"q": 128, "kv": 64})", R"({"q": 64, "kv": 64})", R"({"q": 16, "kv": 64})");
  const std::int64_t window_left = GENERATE(-1, 100);
  const Batch batch{.task = "prefill",
                    .kv_heads = 2,
                    .group = 4,
                    .page = tile.find("128") != std::string::npos ? 16 : 0,
                    .qo_len = 300,
                    .kv_len = 700,
                    .window_left = window_left,
                    .tile = tile};
  INFO(tile << ", window_left " << window_left);
  check_main_loop(batch, run(batch));
}

}  // namespace
}  // namespace attnloom::testing
