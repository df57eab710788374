// SPDX-License-Identifier: Apache-2.0
// A run captured once serves every later plan: replays have the bits of an eager run, whatever the
// lengths, and what a replay must not do shows.
#include <catch2/catch.hpp>

#include "kernels/graph_rig.h"

namespace attnloom::testing {
namespace {

constexpr int kLengthSets = 200;

// Few CTAs, so that small requests are split.
const PlanLimits kFewCtas = {.max_ctas = 6};

int between(std::mt19937& random, int least, int most) {
  return least + static_cast<int>(random() % static_cast<unsigned>(most - least + 1));
}

RigBatch random_decode(std::mt19937& random) {
  RigBatch batch;
  const int requests = between(random, 0, 4);
  for (int r = 0; r < requests; ++r) {
    // Empty, short and split ones.
    const int most[] = {0, 40, 400};
    batch.add_paged(1, between(random, 0, most[random() % 3]));
  }
  return batch;
}

RigBatch random_mixed(std::mt19937& random) {
  RigBatch batch;
  batch.add_paged(1, between(random, 1, 300));
  for (int room = between(random, 0, 40); room > 0;) {
    const int queries = between(random, 0, room);
    batch.add_paged(queries, queries + between(random, 0, 60));
    room -= queries + 20;
  }
  return batch;
}

RigBatch random_sparse(std::mt19937& random) {
  RigBatch batch;
  const int requests = between(random, 1, 3);
  for (int r = 0; r < requests; ++r)
    batch.add_sparse(between(random, 0, 12), between(random, 0, 300), random);
  return batch;
}

struct Kind {
  const char* name;
  RigShape shape;
  RigBatch (*batch)(std::mt19937&);
};

const Kind kKinds[] = {
    {"decode", {}, random_decode},
    {"mixed, with the joint kernel", {.max_tokens = 48}, random_mixed},
    {"block-sparse", {.sparse = true, .causal = false, .max_tokens = 36}, random_sparse}};

}  // namespace

TEST_CASE("captured once, replayed with 200 length sets: the bits of eager runs", "[graph]") {
  const int kind = GENERATE(0, 1, 2);
  const Kind& one = kKinds[kind];
  INFO(one.name);
  GraphRig rig(one.shape);
  GraphRig::Planned graph = rig.make_plan({.graph = true}, kFewCtas);
  GraphRig::Planned eager = rig.make_plan({.graph = true}, kFewCtas);
  std::mt19937 random(static_cast<unsigned>(kind));
  rig.update(graph, one.batch(random));
  rig.capture(graph);
  const EngineCounters before = rig.engine().counters();
  int split = 0;
  for (int set = 0; set < kLengthSets; ++set) {
    CAPTURE(set);
    const RigBatch batch = one.batch(random);
    rig.update(graph, batch);
    const RigOutput replayed = rig.replay(graph);
    rig.update(eager, batch);
    REQUIRE(rig.run(eager) == replayed);
    REQUIRE(replayed.lse.size() == static_cast<std::size_t>(batch.tokens()) * 4);
    split += graph.plan->plan()->figures.split_tiles > 0 ? 1 : 0;
  }
  CHECK(split > kLengthSets / 4);
  CHECK(rig.engine().counters().compiles == before.compiles);
  CHECK(rig.engine().counters().loads == before.loads);
}

// B53.
TEST_CASE("a replay under old lengths is told by check, and after an update equals eager",
          "[graph]") {
  GraphRig rig({});
  GraphRig::Planned graph = rig.make_plan({.graph = true}, kFewCtas);
  GraphRig::Planned eager = rig.make_plan({.graph = true}, kFewCtas);
  const RigBatch one = RigBatch().add_paged(1, 1);
  const RigBatch grown = RigBatch().add_paged(1, 1600);
  rig.update(graph, one);
  rig.capture(graph);
  const RigOutput first = rig.replay(graph);
  CHECK(graph.plan->check(one.workload(), rig.stream()).ok());
  CHECK(rig.replay(graph) == first);  // the lengths grew, nobody planned
  CHECK(graph.plan->check(grown.workload(), rig.stream()).code == Code::kPlanStale);
  rig.update(graph, grown);
  CHECK(graph.plan->check(grown.workload(), rig.stream()).ok());
  const RigOutput replayed = rig.replay(graph);
  rig.update(eager, grown);
  CHECK(rig.run(eager) == replayed);
  CHECK_FALSE(replayed == first);
}

// B45, on the simulated device, which performs copies as late as a stream may.
TEST_CASE("two plans in flight give their own results", "[graph]") {
  GraphRig rig({.kv_heads = 1, .group = 1, .causal = false, .tile = R"({"q": 16, "kv": 64})"});
  rig.set_queries(std::vector<std::uint16_t>(64, 0));
  std::vector<std::uint16_t> values(4 * 64);
  const std::uint16_t numbers[] = {0, 0x3f80, 0x4000, 0x4040};  // 0, 1, 2, 3
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = numbers[i / 64];
  rig.set_values(values);
  GraphRig::Planned a = rig.make_plan();
  GraphRig::Planned b = rig.make_plan();
  const RigBatch four = RigBatch().add_paged(1, 4);
  const RigBatch one = RigBatch().add_paged(1, 1);
  rig.update(a, four);  // the page list of all that follow
  REQUIRE(a.plan->update(one.workload(), rig.stream()).ok());
  REQUIRE(a.plan->update(four.workload(), rig.stream()).ok());
  REQUIRE(b.plan->update(one.workload(), rig.stream()).ok());
  const auto launch = [&](GraphRig::Planned& planned) {
    REQUIRE(planned.plan->run(rig.tensors(), rig.stream()).ok());
    return rig.read(*planned.plan).o[0];
  };
  CHECK(launch(a) == 0x3fc0);  // 1.5
  CHECK(launch(b) == 0);
  CHECK(launch(a) == 0x3fc0);
}

// B51.
TEST_CASE("a workspace full of ones, and what longer plans left in it, reach no output",
          "[graph]") {
  GraphRig rig({.kv_heads = 2, .group = 8});
  GraphRig::Planned clean = rig.make_plan({.graph = true});
  GraphRig::Planned filled = rig.make_plan({.graph = true}, {}, 0xff);
  const RigBatch small = RigBatch().add_paged(1, 100).add_paged(1, 77);
  rig.update(clean, small);
  const RigOutput wanted = rig.run(clean);
  CHECK(clean.plan->plan()->figures.split_tiles == 0);
  rig.update(filled, small);
  rig.capture(filled);
  CHECK(rig.replay(filled) == wanted);
  rig.update(filled, RigBatch().add_paged(1, 900).add_paged(1, 300).add_paged(1, 600));
  CHECK(filled.plan->plan()->figures.split_tiles > 0);
  rig.replay(filled);
  rig.update(filled, small);
  CHECK(rig.replay(filled) == wanted);
}

TEST_CASE("one plan has the same bits in 1000 runs under as many orders of CTAs and warps",
          "[graph]") {
  GraphRig rig({});
  GraphRig::Planned planned = rig.make_plan({.graph = true}, kFewCtas);
  rig.update(planned, RigBatch().add_paged(1, 400).add_paged(1, 150));
  CHECK(planned.plan->plan()->figures.split_tiles > 0);
  const RigOutput first = rig.run(planned);
  rig.capture(planned);
  for (int seed = 1; seed <= 1000; ++seed) {
    CAPTURE(seed);
    rig.device().set_seed(static_cast<std::uint64_t>(seed));
    REQUIRE((seed % 2 == 0 ? rig.run(planned) : rig.replay(planned)) == first);
  }
}

TEST_CASE("one plan serves all layers of a step", "[graph]") {
  GraphRig rig({});
  GraphRig::Planned shared = rig.make_plan({}, kFewCtas);
  const RigBatch batch = RigBatch().add_paged(1, 400).add_paged(1, 33);
  rig.update(shared, batch);
  for (std::uint64_t layer = 0; layer < 4; ++layer) {
    CAPTURE(layer);
    rig.set_values(random_bits(2048 * 2 * 64, 10 + layer));
    GraphRig::Planned own = rig.make_plan({}, kFewCtas);
    rig.update(own, batch);
    CHECK(rig.run(own) == rig.run(shared));
  }
}

}  // namespace attnloom::testing
