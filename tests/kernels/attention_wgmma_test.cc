// SPDX-License-Identifier: Apache-2.0
// attention_wgmma: right against the float64 reference in what the family does, clean under every
// order of warps, and every planted fault of its protocol is noticed.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "kernels/wgmma_cases.h"

namespace attnloom::testing {
namespace {

// Tails in every tile, requests without keys or queries, and with few SMs queues of several items.
const Shape kMixed = {{60, 0, 5, 131}, {300, 40, 0, 411}};

}  // namespace

TEST_CASE("warpgroup kernels agree with the reference for every head dim and tile", "[tiles]") {
  check_wgmma(wgmma_case({}, kMixed));
  check_wgmma(wgmma_case({.variant = variant("plain", false), .dtype = "f16"}, kMixed));
  check_wgmma(wgmma_case({.qk = 64, .vo = 64}, {{200, 1}, {200, 900}, 1, 3}));
  check_wgmma(wgmma_case({.qk = 64, .vo = 64, .q_tile = 192}, kMixed));
  check_wgmma(wgmma_case({.variant = variant("plain", false), .qk = 128, .vo = 64, .q_tile = 192},
                         {{3, 200}, {190, 700}, 32, 1}));
  check_wgmma(wgmma_case({}, {{60, 0, 5, 131}, {300, 40, 0, 411}, 7, 1}));
  check_wgmma(wgmma_case({.qk = 64, .vo = 64, .q_tile = 192}, {{70, 9}, {300, 40}, 5, 2}));
  check_wgmma(wgmma_case({.qk = 192, .vo = 128, .dtype = "f16"}, {{70}, {333}, 2, 1}));
  check_wgmma(wgmma_case({.qk = 64, .vo = 128, .kv_tile = 96}, {{40}, {700}, 16, 1}));
  check_wgmma(wgmma_case({.variant = variant("plain", false), .qk = 128, .vo = 64, .kv_tile = 64},
                         {{3, 200}, {190, 700}, 8, 1}));
}

// Two slabs of keys, the second half empty; values whose accumulators leave room for 80 keys.
TEST_CASE("warpgroup kernels agree with the reference for head dims 96 and 256", "[dims]") {
  check_wgmma(wgmma_case({.qk = 96, .vo = 96}, kMixed));
  check_wgmma(wgmma_case({.variant = variant("plain", false),
                          .layout = paged(5),
                          .qk = 96,
                          .vo = 96,
                          .kv_tile = 96,
                          .dtype = "f16"},
                         {{60, 9}, {300, 411}, 3, 2}));
  check_wgmma(wgmma_case({.layout = paged(16), .qk = 96, .vo = 64, .q_tile = 192}, kMixed));
  check_wgmma(wgmma_case({.qk = 256, .vo = 256, .kv_tile = 80}, kMixed));
  check_wgmma(wgmma_case({.variant = variant("plain", false),
                          .layout = paged(16),
                          .qk = 256,
                          .vo = 256,
                          .kv_tile = 80,
                          .dtype = "f16"},
                         kMixed));
  check_wgmma(wgmma_case({.layout = {{"kv", "padded"}}, .qk = 256, .vo = 256, .kv_tile = 64},
                         {{60, 9}, {300, 411}, 3, 2}));
  check_wgmma(wgmma_case({.layout = paged(12), .qk = 256, .vo = 256, .kv_tile = 80}, kMixed));
  check_wgmma(wgmma_case({.qk = 192, .vo = 256, .kv_tile = 80}, {{70}, {333}, 2, 1}));
}

TEST_CASE("warpgroup kernels agree with the reference in every layout", "[layouts]") {
  check_wgmma(wgmma_case({.layout = {{"kv", "padded"}}}, kMixed));
  for (const int page : {8, 16, 128}) check_wgmma(wgmma_case({.layout = paged(page)}, kMixed));
  check_wgmma(wgmma_case({.layout = paged(192), .kv_tile = 96}, kMixed));
}

TEST_CASE("warpgroup kernels gather pages that no box fits", "[layouts]") {
  for (const int page : {1, 12}) check_wgmma(wgmma_case({.layout = paged(page)}, kMixed));
  // Its compile with KV tile 128 lacks registers (C7512) and is followed by one with 96.
  check_wgmma(wgmma_case({.layout = paged(5), .qk = 64, .vo = 64, .q_tile = 192},
                         {{70, 9}, {300, 40}, 3, 2}));
}

TEST_CASE("warpgroup kernels agree with the reference for every variant they do", "[variants]") {
  const Json window = {{"mask", {{"window_left", "runtime"}}}};
  check_wgmma(wgmma_case({.variant = variant("window", true, window)}, {{300}, {700}}, {},
                         {{"window_left", 100}}));
  check_wgmma(wgmma_case({.variant = variant("window", false, window)}, {{70, 9}, {500, 90}}, {},
                         {{"window_left", 64}}));
  const Json cap = {{"params", {{{"name", "cap"}, {"type", "f32"}}}},
                    {"logits_transform", "return cap * loom::tanh(logits / cap);"}};
  check_wgmma(wgmma_case({.variant = variant("cap", true, cap)}, kMixed, {{"cap", 3.0}}));
  const Json free = {{"logits_mask", "return kv_pos % 3 != q_head % 3;"},
                     {"output_transform", "return lse > 0.0f ? o + float(dim % 5) : -o;"}};
  check_wgmma(wgmma_case({.variant = variant("free", false, free), .layout = paged(16)}, kMixed));
  const Json sink = {{"sink", "sinks"}, {"params", {{{"name", "sinks"}, {"type", "ptr<f32>"}}}}};
  const Json sinks = {{"dtype", "f32"}, {"shape", {8}}, {"data", {1, 2, 3, 4, -1, 0, 2, 1}}};
  check_wgmma(wgmma_case({.variant = variant("sink", true, sink)}, kMixed, {{"sinks", sinks}}));
  const Json linear = {{"softmax", false}, {"logits_transform", "return logits * 0.125f;"}};
  check_wgmma(wgmma_case({.variant = variant("linear", true, linear)}, kMixed));
}

TEST_CASE("states that several warpgroup items leave are merged", "[layouts]") {
  const Json json = wgmma_case({.variant = variant("plain", false)}, {{9, 1}, {5000, 2700}});
  const std::unique_ptr<Engine> engine = make_test_engine();
  const CaseFile file = parse_or_fail(json.dump());
  const Result<CaseRun> run = run_case(*engine, file, {.launches = 2});
  CHECK(judge_run(file, run) == "");
  CHECK(run->figures.split_tiles > 0);
}

// Two requests and pages that end in NaN; several items a queue, so that stages and slots come
// round.
CaseFile protocol_case(int group, int page = 16) {
  return parse_or_fail(wgmma_case({.layout = paged(page), .qk = 64, .vo = 64, .kv_tile = 64},
                                  {{70, 33, 40}, {300, 205, 150}, group, 1})
                           .dump());
}

constexpr const char* kAlgorithm = "attention_wgmma.cuh";
constexpr const char* kRing = "loom/ring_sm90.cuh";
constexpr const char* kPipeline = "loom/pipeline_sm90.cuh";
constexpr const char* kGather = "loom/gather_sm90.cuh";
const std::vector<WgmmaMutant> kMutants = {
    {"wrong phase", kAlgorithm, "key_place.stage()), key_place.parity());",
     "key_place.stage()), key_place.parity() ^ 1);"},
    {"an arrival is missing", kAlgorithm, "if (leads()) barrier_arrive(ring.keys_free",
     "if (leads() && Crew::group() == 0) barrier_arrive(ring.keys_free"},
    {"fewer bytes announced than come", kPipeline, "barrier_expect(landed, Tile::kBytes);",
     "barrier_expect(landed, Tile::kBytes - 16);"},
    {"stage released while its product runs", kAlgorithm,
     "products_wait<0>();\n    hold(values[0]);\n    release_values();\n    if (shrinks)",
     "release_values();\n    products_wait<0>();\n    hold(values[0]);\n    if (shrinks)"},
    {"accumulator read in flight", kAlgorithm,
     "products_wait<0>();\n    hold(values[0]);\n    release_values();\n    if (shrinks)",
     "products_wait<1>();\n    hold(values[0]);\n    release_values();\n    if (shrinks)"},
    {"wrong swizzle", "loom/warpgroup.cuh", "kSwizzle128 = u32{1} << 30",
     "kSwizzle128 = u32{2} << 30"},
    {"rows behind the last key left as they are", kPipeline, "clear_tail(rows);", ";"},
    {"cleared rows not shown to the products", kPipeline, "fence_async_proxy();\n    __syncwarp();",
     "__syncwarp();"},
    {"gathered queries not shown to the products", kGather,
     "fence_async_proxy();\n    barrier_arrive", "barrier_arrive", 3},
    {"gathered keys not shown to the products", kGather, "fence_async_proxy();\n    barrier_arrive",
     "barrier_arrive", 4, 5},
    {"a gathered row of the next page", kGather, "token / Config::kPageSize]",
     "(token + 1) / Config::kPageSize]", 4, 5},
    {"the last key left out of what is gathered", kGather, "bool exists = token < end;",
     "bool exists = token < end - 1;", 4, 5},
    {"gathered queries not waited for", kGather, "copy_async_wait<left>();", ";", 3},
    {"barriers not shown to the copies", kRing, "barrier_init_done();", ";"},
    {"an item overwritten while it is read", kRing, "barrier_init(kept_free(slot), kKeptReaders);",
     "barrier_init(kept_free(slot), 1);"},
    {"a stage overwritten while it is read", kPipeline,
     "barrier_wait(ring.keys_free(keys.stage()), keys.parity() ^ 1);", ";"},
    {"nobody's turn", "loom/roles_sm90.cuh", "group() + 1 == kGroups ? 0 : group() + 1", "group()"},
    {"more registers taken than there are", "loom/roles_sm90.cuh",
     "Config::kThreads == 384 ? 504 : 512", "Config::kThreads == 384 ? 520 : 512"},
    {"the causal end of a tile off by one", kAlgorithm, "item.bounds.end, columns",
     "item.bounds.end - 1, columns"},
};

TEST_CASE("every fault of the warpgroup pipeline is noticed under every order", "[protocol]") {
  for (const WgmmaMutant& mutant : kMutants)
    check_noticed(mutant, protocol_case(mutant.group, mutant.page));
}

TEST_CASE("the warpgroup pipeline is clean under every order", "[protocol]") {
  const CaseFile file = protocol_case(GENERATE(3, 4), GENERATE(5, 16));
  check_clean(file);
}

}  // namespace attnloom::testing
