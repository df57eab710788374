// SPDX-License-Identifier: Apache-2.0
// Algorithm 1 on batches small enough to schedule by hand.
#include <bit>
#include <catch2/catch.hpp>

#include "plan_fixture.h"

namespace attnloom {
namespace {

using loom::MergeTile;
using loom::WorkItem;
using test::Batch;
using test::plan_or_fail;
using test::read_plan;
using test::Tables;

TEST_CASE("a decode batch on 2 CTAs") {
  // Tokens 400 + 112 + 0 on 2 CTAs: L_kv = 256. Costs 16 + 256, 16 + 144, 16 + 112, 16 + 0.
  Batch batch;
  batch.add(1, 400).add(1, 112).add(1, 0);
  const Plan plan = plan_or_fail(test::ragged_spec(), test::one_kernel(16, 32), batch, 2);
  const Tables tables = read_plan(plan);
  CHECK(tables.cta_begin == std::vector<int>{0, 2, 4});
  CHECK(tables.items == std::vector<WorkItem>{{0, 0, 0, 0, 256, 0, 0, 0},
                                              {2, 0, 0, 0, 0, 0, -1, -1},
                                              {0, 0, 0, 256, 400, 0, 16, 0},
                                              {1, 0, 0, 0, 112, 0, -1, -1}});
  CHECK(tables.merges == std::vector<MergeTile>{{0, 2}});
  CHECK(tables.counters == std::vector<int>{0});
  CHECK(plan.grid == 2);
  CHECK(plan.figures.chunk_tokens == 256);
  CHECK(plan.figures.makespan == 288);  // 272 + 16, and 160 + 128
  CHECK(plan.figures.ideal == 288);
  CHECK(plan.figures.items == 4);
  CHECK(plan.figures.split_tiles == 1);
}

TEST_CASE("ties go by request, tile, head and chunk, and to the first CTA") {
  SECTION("heads and requests") {
    Batch batch;
    batch.kv_heads = 2;
    batch.add(1, 64).add(1, 64);
    const Tables tables =
        read_plan(plan_or_fail(test::ragged_spec(), test::one_kernel(16, 32), batch, 2));
    CHECK(tables.cta_begin == std::vector<int>{0, 2, 4});
    CHECK(tables.items == std::vector<WorkItem>{{0, 0, 0, 0, 64, 0, -1, -1},
                                                {1, 0, 0, 0, 64, 0, -1, -1},
                                                {0, 0, 1, 0, 64, 0, -1, -1},
                                                {1, 0, 1, 0, 64, 0, -1, -1}});
  }
  SECTION("chunks stand within gangs of heads, partial states in plan order, lane by lane") {
    Batch batch;
    batch.kv_heads = 2;
    batch.add(1, 512);
    const Tables tables =
        read_plan(plan_or_fail(test::ragged_spec(), test::one_kernel(16, 32), batch, 4));
    CHECK(tables.items == std::vector<WorkItem>{{0, 0, 0, 0, 256, 0, 0, 0},
                                                {0, 0, 1, 0, 256, 0, 16, 1},
                                                {0, 0, 0, 256, 512, 0, 32, 0},
                                                {0, 0, 1, 256, 512, 0, 48, 1}});
    CHECK(tables.merges == std::vector<MergeTile>{{0, 2}, {16, 2}});
    CHECK(tables.header.lanes == 2);
    CHECK(tables.header.item_count == 2);  // each stands for two
    CHECK(tables.queues[1].begin == 0);
    CHECK(tables.queues[1].lane == 1);
    CHECK(tables.queues[2].begin == 1);
    CHECK(tables.queues[2].lane == 0);
  }
  SECTION("a cost without KV tokens keeps that order for the shorter last chunk") {
    Batch batch;
    batch.kv_heads = 2;
    batch.add(1, 400);
    const Result<Plan> plan =
        make_plan(test::ragged_spec(), test::one_kernel(16, 32), batch.limits(4), batch.view(), 1,
                  CostModel{.alpha = 1, .beta = 0});
    REQUIRE(plan.ok());
    const Tables tables = read_plan(plan.value());
    CHECK(tables.items == std::vector<WorkItem>{{0, 0, 0, 0, 224, 0, 0, 0},
                                                {0, 0, 1, 0, 224, 0, 16, 1},
                                                {0, 0, 0, 224, 400, 0, 32, 0},
                                                {0, 0, 1, 224, 400, 0, 48, 1}});
  }
}

TEST_CASE("query tiles are packed rows, and their KV counts once per tile and head") {
  // 20 tokens of 2 heads a group are 40 rows, 3 tiles of 16; 3 tiles x 2 heads x 64 tokens on 6
  // CTAs: L_kv = 64.
  Batch batch;
  batch.kv_heads = 2;
  batch.group_size = 2;
  batch.add(20, 64);
  const Plan plan = plan_or_fail(test::ragged_spec(2), test::one_kernel(16, 32), batch, 6);
  const Tables tables = read_plan(plan);
  CHECK(plan.figures.chunk_tokens == 64);
  CHECK(tables.items == std::vector<WorkItem>{{0, 0, 0, 0, 64, 0, -1, -1},
                                              {0, 0, 1, 0, 64, 0, -1, -1},
                                              {0, 16, 0, 0, 64, 0, -1, -1},
                                              {0, 16, 1, 0, 64, 0, -1, -1},
                                              {0, 32, 0, 0, 64, 0, -1, -1},
                                              {0, 32, 1, 0, 64, 0, -1, -1}});
}

TEST_CASE("each class of a joint kernel rounds the chunk to its own KV tile") {
  // 1 token x 1000 and 2 tiles x 300 on 10 CTAs: L_kv = 160: 256 for class 16, 192 for class 128.
  Batch batch;
  batch.add(1, 1000).add(256, 300);
  // Rows only have a cost, so that Algorithm 1's cut is the one to be kept.
  const Result<Plan> plan = make_plan(test::ragged_spec(), test::auto_kernels(), batch.limits(10),
                                      batch.view(), 1, CostModel{.alpha = 1, .beta = 0});
  REQUIRE(plan.ok());
  const Tables tables = read_plan(*plan);
  std::vector<int> ends[2];
  for (const WorkItem& item : tables.items) {
    ends[item.request].push_back(item.kv_end);
    CHECK(item.tile_class == item.request);
  }
  std::sort(ends[0].begin(), ends[0].end());
  std::sort(ends[1].begin(), ends[1].end());
  CHECK(ends[0] == std::vector<int>{256, 512, 768, 1000});
  CHECK(ends[1] == std::vector<int>{192, 192, 300, 300});
  CHECK(tables.merges == std::vector<MergeTile>{{0, 4}, {64, 2}, {64 + 256, 2}});
}

// 3 requests of 1000 tokens on 2 heads and 4 CTAs. Algorithm 1: L_kv = 1500, nothing is split, six
// items of 1016 on four CTAs: 2032. The line of a pair of CTAs, one a head: 3048 and a border of
// 16, so 1532 for each: 1000 of the first request and 500 (1532 - 1016 - 16, down to 32s: 480) of
// the second; then 520 of it and the third.
TEST_CASE("the contiguous cut where Algorithm 1 leaves CTAs idle") {
  Batch batch;
  batch.kv_heads = 2;
  batch.add(1, 1000).add(1, 1000).add(1, 1000);
  const Plan plan = plan_or_fail(test::ragged_spec(), test::one_kernel(16, 32), batch, 4);
  CHECK(plan.figures.contiguous);
  CHECK(plan.figures.makespan == 1016 + 16 + 520);
  const Tables tables = read_plan(plan);
  CHECK(tables.cta_begin == std::vector<int>{0, 2, 4, 6, 8});
  CHECK(tables.items == std::vector<WorkItem>{{0, 0, 0, 0, 1000, 0, -1, -1},
                                              {1, 0, 0, 0, 480, 0, 0, 0},
                                              {0, 0, 1, 0, 1000, 0, -1, -1},
                                              {1, 0, 1, 0, 480, 0, 16, 1},
                                              {1, 0, 0, 480, 1000, 0, 32, 0},
                                              {2, 0, 0, 0, 1000, 0, -1, -1},
                                              {1, 0, 1, 480, 1000, 0, 48, 1},
                                              {2, 0, 1, 0, 1000, 0, -1, -1}});
  CHECK(tables.merges == std::vector<MergeTile>{{0, 2}, {16, 2}});
}

// Causal, 2 CTAs: what no row of a tile sees weighs nothing. Query tile 16 of 48 tokens sees 16, 32
// and 48 keys: 32 + 48 against 64 in Algorithm 1's order.
// Requests of 4096 tokens, 16 MiB of keys and values each: a section.
constexpr int kSectionTokens = 4096;

Spec hopper_spec(bool causal) {
  Spec spec = test::ragged_spec();
  spec.head_dim = {128, 128};
  spec.variant.mask.causal = causal;
  return spec;
}

std::vector<KernelChoice> hopper_kernel() {
  std::vector<KernelChoice> kernels = test::one_kernel(128, 128);
  kernels[0].family = "attention_wgmma";
  return kernels;
}

bool takes_requests_in_order(const Tables& tables) {
  for (std::size_t cta = 0; cta + 1 < tables.cta_begin.size(); ++cta) {
    for (int i = tables.cta_begin[cta] + 1; i < tables.cta_begin[cta + 1]; ++i)
      if (tables.items[i].request < tables.items[i - 1].request) return false;
  }
  return true;
}

TEST_CASE("warpgroup kernels read section by section, each longest first") {
  Batch batch;
  batch.kv_heads = 8;
  for (int i = 0; i < 3; ++i) batch.add(kSectionTokens, kSectionTokens);
  const Plan plan = plan_or_fail(hopper_spec(true), hopper_kernel(), batch, 4);
  const Tables tables = read_plan(plan);
  CHECK(takes_requests_in_order(tables));
  CHECK(tables.items[0].q_row == kSectionTokens - 128);
  CHECK(plan.figures.makespan <= 1.05 * plan.figures.ideal);
  CHECK_FALSE(takes_requests_in_order(
      read_plan(plan_or_fail(hopper_spec(true), test::one_kernel(128, 128), batch, 4))));
}

TEST_CASE("small requests share a section") {
  Batch batch;
  batch.kv_heads = 8;
  for (int i = 0; i < 4; ++i) batch.add(kSectionTokens / 4, kSectionTokens / 4);
  CHECK_FALSE(takes_requests_in_order(
      read_plan(plan_or_fail(hopper_spec(true), hopper_kernel(), batch, 4))));
}

TEST_CASE("sections that leave CTAs idle are given up") {
  Batch batch;
  batch.kv_heads = 8;
  batch.add(kSectionTokens, kSectionTokens).add(128, 15 * kSectionTokens);
  const Plan plan = plan_or_fail(hopper_spec(true), hopper_kernel(), batch, 16);
  CHECK(read_plan(plan).items[0].request == 1);
}

TEST_CASE("the few equal tiles of a last wave are cut over all CTAs") {
  // 33 tiles on 2 CTAs: 16 whole ones each, and half of the last.
  Batch batch;
  batch.add(33 * 128, kSectionTokens);
  const Plan plan = plan_or_fail(hopper_spec(false), hopper_kernel(), batch, 2);
  CHECK_FALSE(plan.figures.contiguous);
  CHECK(plan.figures.split_tiles == 1);
  CHECK(plan.figures.makespan == 16.0 * (128 + kSectionTokens) + 128 + kSectionTokens / 2);
  const Tables tables = read_plan(plan);
  CHECK(tables.items[16] == WorkItem{0, 32 * 128, 0, 0, kSectionTokens / 2, 0, 0, 0});
  CHECK(tables.items[33] ==
        WorkItem{0, 32 * 128, 0, kSectionTokens / 2, kSectionTokens, 0, 128, 0});
  // With another family the line of all tiles is cut.
  CHECK(plan_or_fail(hopper_spec(false), test::one_kernel(128, 128), batch, 2).figures.contiguous);
}

TEST_CASE("a last wave is left whole where it is full, or its tiles differ") {
  Batch full;
  full.add(34 * 128, kSectionTokens);
  CHECK(plan_or_fail(hopper_spec(false), hopper_kernel(), full, 2).figures.split_tiles == 0);
  Batch many;  // 201 tiles on 2 CTAs: half of one in a hundred
  many.add(201 * 128, kSectionTokens);
  CHECK(plan_or_fail(hopper_spec(false), hopper_kernel(), many, 2).figures.split_tiles == 0);
  Batch causal;
  causal.add(33 * 128, 33 * 128);
  CHECK(plan_or_fail(hopper_spec(true), hopper_kernel(), causal, 2).figures.split_tiles == 0);
}

TEST_CASE("keys that causality hides weigh nothing") {
  Batch batch;
  batch.add(48, 48);
  Spec spec = test::ragged_spec();
  spec.variant.mask.causal = true;
  const Plan plan = plan_or_fail(spec, test::one_kernel(16, 16), batch, 2);
  CHECK_FALSE(plan.figures.contiguous);
  CHECK(plan.figures.makespan == (16 + 16) + (16 + 32));
  CHECK(read_plan(plan).items == std::vector<WorkItem>{{0, 32, 0, 0, 48, 0, -1, -1},
                                                       {0, 16, 0, 0, 48, 0, -1, -1},
                                                       {0, 0, 0, 0, 48, 0, -1, -1}});
}

// One head of 100 CTAs. Keys are 2 (64 + 64) bytes a token, a state 4 (64 + 1) bytes a row.
TEST_CASE("no chunk is shorter than what its partial state costs") {
  const auto chunk = [](int rows, int kv_len, DType kv = DType::kBf16, int query_tile = 16) {
    Batch batch;
    batch.group_size = rows;
    batch.add(1, kv_len);
    Spec spec = test::ragged_spec(rows);
    spec.dtype.kv = kv;
    return read_plan(plan_or_fail(spec, test::one_kernel(query_tile, 32), batch, 100))
        .items[0]
        .kv_end;
  };
  CHECK(chunk(1, 100) == 100);
  CHECK(chunk(1, 1000) == 128);
  CHECK(chunk(8, 2000) == 128);                // T T >= 16250
  CHECK(chunk(8, 2100) == 160);                // 17062
  CHECK(chunk(16, 2100) == 192);               // 34125: 184.7
  CHECK(chunk(4, 2100, DType::kE4m3) == 160);  // keys of half the bytes are like twice the rows
  CHECK(chunk(16, 2100, DType::kBf16, 64) == 128);  // arithmetic, not bytes
  CHECK(chunk(1, 100000) == 1024);  // 1000 on a CTA: Algorithm 1's own chunk is longer
}

TEST_CASE("a request without query tokens makes no item and weighs nothing") {
  Batch batch;
  batch.add(0, 1000000).add(1, 64);
  const Plan plan = plan_or_fail(test::ragged_spec(), test::one_kernel(16, 32), batch, 1);
  CHECK(plan.figures.chunk_tokens == 64);
  CHECK(read_plan(plan).items == std::vector<WorkItem>{{1, 0, 0, 0, 64, 0, -1, -1}});
  CHECK(plan.qo_tokens == 1);
  CHECK(plan.kv_rows == 1000064);
}

TEST_CASE("a step of 256 decode requests copies at most 64 KiB") {
  for (const bool equal : {true, false}) {
    Batch batch;
    batch.kv_heads = 8;
    batch.group_size = 4;
    for (int r = 0; r < 256; ++r) batch.add(1, equal ? 1024 : 1 + r * 997 % 8192);
    const Plan plan =
        plan_or_fail(test::ragged_spec(4), {test::kernel({{16, 64, 2}}, 3)}, batch, 132);
    CHECK(plan.figures.items >= 2048);
    CHECK(plan.block.size() <= 64 << 10);
  }
}

TEST_CASE("an empty batch is a plan of empty queues") {
  const Plan plan = plan_or_fail(test::ragged_spec(), test::one_kernel(16, 32), Batch{}, 3);
  const Tables tables = read_plan(plan);
  CHECK(plan.grid == 3);
  CHECK(tables.cta_begin == std::vector<int>{0, 0, 0, 0});
  CHECK(tables.items.empty());
  CHECK(plan.figures.makespan == 0);
}

TEST_CASE("the header holds what the kernel reads") {
  Spec spec = test::ragged_spec();
  spec.variant.params = {{"cap", ParamType::kF32},
                         {"slopes", ParamType::kPtrF32},
                         {"shift", ParamType::kI32},
                         {"seed", ParamType::kU32}};
  spec.variant.mask.window_left = std::nullopt;
  Batch batch;
  batch.add(2, 5);
  Workload workload = batch.view();
  workload.scalars = {{"seed", 4294967295.0}, {"shift", -3}, {"cap", 30.0}};
  workload.window_left = 7;
  const Result<Plan> plan =
      make_plan(spec, test::one_kernel(16, 32), batch.limits(1), workload, 42);
  REQUIRE(plan.ok());
  const loom::PlanHeader header = read_plan(plan.value()).header;
  CHECK(header.magic == 0x4d4f4f4cu);
  CHECK(header.version == 3);
  CHECK(header.generation == 42);
  CHECK(header.scale == 0.125f);  // 1 / sqrt(64)
  CHECK(header.window_left == 7);
  CHECK(header.scalars[0] == std::bit_cast<unsigned>(30.0f));
  CHECK(header.scalars[1] == 0xfffffffdu);
  CHECK(header.scalars[2] == 0xffffffffu);
  CHECK(header.scalars[3] == 0);

  spec.variant.mask.window_left = 11;
  workload.window_left = std::nullopt;
  workload.scale = 1.0f;
  const Result<Plan> fixed =
      make_plan(spec, test::one_kernel(16, 32), batch.limits(1), workload, 43);
  REQUIRE(fixed.ok());
  CHECK(read_plan(fixed.value()).header.window_left == 11);
  CHECK(read_plan(fixed.value()).header.scale == 1.0f);
}

TEST_CASE("a batch over the limits names needed and available") {
  Batch batch;
  batch.add(3, 5).add(3, 5);
  const auto refused = [&batch](auto change, const std::string& cause) {
    PlanLimits limits = batch.limits(1);
    change(limits);
    const Result<Plan> plan =
        make_plan(test::ragged_spec(), test::one_kernel(16, 32), limits, batch.view(), 1);
    REQUIRE_FALSE(plan.ok());
    CHECK(code_name(plan.status().code) == "PLAN_BOUND");
    CHECK(plan.status().cause == cause);
  };
  refused([](PlanLimits& l) { l.max_batch = 1; },
          "needed 2, available 1; request 1 is the first without room");
  refused([](PlanLimits& l) { l.max_qo_tokens = 5; },
          "needed 6, available 5; request 1 is the first without room");
}

TEST_CASE("the plan as people read it") {
  Batch batch;
  batch.add(1, 400).add(1, 112);
  const std::vector<KernelChoice> kernels = test::one_kernel(16, 32);
  const Json json = plan_to_json(test::ragged_spec(), kernels,
                                 plan_or_fail(test::ragged_spec(), kernels, batch, 2));
  CHECK(json["grid"] == 2);
  CHECK(json["kernel"]["classes"] == Json::parse(R"([{"q":16,"kv":32,"stages":2}])"));
  CHECK(json["queues"][0][0]["kv"] == Json::parse("[0,256]"));
  CHECK(json["queues"].size() == 2);
  CHECK(json["merges"] == Json::parse(R"([{"partial_row":0,"count":2}])"));
  CHECK(json["figures"]["items"] == 3);
}

}  // namespace
}  // namespace attnloom
