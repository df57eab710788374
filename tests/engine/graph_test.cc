// SPDX-License-Identifier: Apache-2.0
// What a plan fixes when it is made, and what a captured run makes it refuse later.
#include <catch2/catch.hpp>

#include "engine/plan_object.h"
#include "engine/stubs.h"

namespace attnloom {
namespace {

constexpr DeviceAddress kWorkspace = 0x100000;
constexpr DeviceAddress kInputs = 0x200000;
constexpr DeviceAddress kOutputs = 0x100000000;  // behind the largest input

// Room for decodes and prefills, and for a token a request only.
constexpr PlanLimits kMixed = {.max_batch = 4, .max_qo_tokens = 400, .q_heads = 4, .kv_heads = 2};
constexpr PlanLimits kDecode = {.max_batch = 4, .max_qo_tokens = 4, .q_heads = 4, .kv_heads = 2};

// Requests of `queries` tokens over `pages` full pages each.
struct Batch {
  explicit Batch(std::vector<int> queries, int pages = 3) : last(queries.size(), 16) {
    for (const int count : queries) {
      qo.push_back(qo.back() + count);
      kv.push_back(kv.back() + pages);
    }
  }
  std::vector<std::int32_t> qo{0};
  std::vector<std::int32_t> kv{0};
  std::vector<std::int32_t> last;
  Workload workload() const {
    Workload made;
    made.qo_indptr = qo;
    made.kv_indptr = kv;
    made.last_page_len = last;
    return made;
  }
};

TensorView tensor(std::initializer_list<std::int64_t> shape, TensorType type = TensorType::kBf16,
                  DeviceAddress data = kInputs) {
  return dense_tensor(type, std::span(shape.begin(), shape.size()), data);
}

AttentionTensors tensors_for(std::int64_t tokens, std::int64_t pages) {
  AttentionTensors tensors;
  tensors.q = tensor({tokens, 4, 64});
  tensors.k = tensor({128, 16, 2, 64});
  tensors.v = tensor({128, 16, 2, 64});
  tensors.o = tensor({tokens, 4, 64}, TensorType::kBf16, kOutputs);
  tensors.page_indices = tensor({pages}, TensorType::kI32);
  return tensors;
}

struct Bound {
  StubEngine& one;
  std::shared_ptr<KernelSet> kernels;
  std::unique_ptr<PlanObject> plan;
  std::vector<std::byte> staging;

  Bound(StubEngine& one, const PlanLimits& limits, const PlanOptions& options)
      : one(one), kernels(one.open(auto_spec())) {
    auto made = PlanObject::create(kernels, limits, options);
    INFO(made.status().to_string());
    REQUIRE(made.ok());
    plan = std::move(made).value();
    staging.resize(plan->staging_bytes());
    REQUIRE(plan->bind(kWorkspace, plan->workspace_bytes(), staging.data(), staging.size()).ok());
  }
  ~Bound() { one.device->perform_all(); }  // the copies that still read `staging`
  Status update(const Batch& batch) { return plan->update(batch.workload(), nullptr); }
  std::vector<int> query_tiles() const {
    const KernelChoice choice = kernels->choices()[plan->plan()->kernel];
    std::vector<int> tiles;
    for (const TileClass& tile : choice.classes) tiles.push_back(tile.q);
    return tiles;
  }
};

// A run while the device captures.
Status capture(StubEngine& one, PlanObject& plan, AttentionTensors& tensors) {
  one.device->capturing = true;
  const Status status = plan.run(tensors, nullptr);
  one.device->capturing = false;
  return status;
}

TEST_CASE("a graph plan has one kernel for all batches, loaded when it is made") {
  StubEngine one({.root = ""});
  Bound mixed(one, kMixed, {.graph = true});
  CHECK(one.device->loads == 1);
  const std::uint64_t compiles = one.engine->counters().compiles;
  REQUIRE(mixed.update(Batch({1, 1})).ok());
  CHECK(mixed.query_tiles() == std::vector<int>{16, 128});
  auto tensors = tensors_for(400, 128);
  REQUIRE(capture(one, *mixed.plan, tensors).ok());
  const unsigned grid = one.device->launches.back().grid;
  for (const Batch& batch : {Batch({300}), Batch({1, 300, 20}), Batch({1}), Batch({})}) {
    REQUIRE(mixed.update(batch).ok());
    CHECK(mixed.query_tiles() == std::vector<int>{16, 128});
    CHECK(mixed.plan->plan()->grid == static_cast<int>(grid));
  }
  CHECK(one.engine->counters().compiles == compiles);
  CHECK(one.device->loads == 1);

  Bound decode(one, kDecode, {.graph = true});
  REQUIRE(decode.update(Batch({1, 1})).ok());
  CHECK(decode.query_tiles() == std::vector<int>{16});
  CHECK(decode.plan->workspace_bytes() < mixed.plan->workspace_bytes());
}

TEST_CASE("a graph plan is sized for its kernel as compiled, and bad limits compile nothing") {
  StubEngine one({.root = ""});
  one.compiler->spill_bytes = [&](const Source&) { return one.compiler->compiles == 1 ? 4 : 0; };
  PlanLimits bad = kMixed;
  bad.kv_heads = 0;
  CHECK_FALSE(PlanObject::create(one.open(auto_spec()), bad, {.graph = true}).ok());
  CHECK(one.compiler->compiles == 0);
  Bound bound(one, kMixed, {.graph = true});
  CHECK(one.engine->counters().step_downs == 1);
  CHECK(bound.update(Batch({1, 300})).ok());
}

TEST_CASE("a named kernel serves all batches, and one that is not there is refused") {
  StubEngine one({.root = ""});
  Bound bound(one, kMixed, {.kernel = 2});
  CHECK(one.device->loads == 0);  // at the first update, without `graph`
  for (const Batch& batch : {Batch({1}), Batch({300}), Batch({1, 300})}) {
    REQUIRE(bound.update(batch).ok());
    CHECK(bound.query_tiles() == std::vector<int>{64});
  }
  for (const int kernel : {-2, 6}) {
    const auto made = PlanObject::create(one.open(auto_spec()), kMixed, {.kernel = kernel});
    CHECK(made.status().code == Code::kArgumentInvalid);
    CHECK(made.status().path == "limits.kernel");
  }
}

TEST_CASE("after a captured run a batch for another kernel is refused, and the last plan stays") {
  StubEngine one({.root = ""});
  Bound bound(one, kMixed, {});
  REQUIRE(bound.update(Batch({1, 1})).ok());
  auto tensors = tensors_for(400, 128);
  REQUIRE(bound.plan->run(tensors, nullptr).ok());
  REQUIRE(bound.update(Batch({300})).ok());  // nothing is captured yet
  REQUIRE(bound.update(Batch({1, 1})).ok());
  REQUIRE(capture(one, *bound.plan, tensors).ok());
  const std::uint64_t copies = one.engine->counters().copies;
  const Status other = bound.update(Batch({300}));
  CHECK(other.code == Code::kPlanMismatch);
  CHECK_THAT(other.remedy, Catch::Contains("limits.graph"));
  CHECK(one.engine->counters().copies == copies);
  CHECK(bound.plan->check(Batch({1, 1}).workload(), nullptr).ok());
  CHECK(bound.update(Batch({1, 2, 1})).ok());  // the same class
}

TEST_CASE("after a captured run a batch that its tensors cannot hold is refused by their names") {
  StubEngine one({.root = ""});
  Bound bound(one, kMixed, {.graph = true});
  REQUIRE(bound.update(Batch({1, 1})).ok());
  auto large = tensors_for(400, 128);
  auto small = tensors_for(40, 9);
  REQUIRE(capture(one, *bound.plan, large).ok());
  CHECK(bound.update(Batch({300})).ok());
  REQUIRE(bound.update(Batch({1, 1})).ok());
  REQUIRE(capture(one, *bound.plan, small).ok());
  const Status tokens = bound.update(Batch({41}));
  CHECK(tokens.code == Code::kPlanBound);
  CHECK(tokens.path == "tensors.q");
  CHECK(tokens.cause == "needed 41, available 40 in the tensor of a captured run");
  CHECK(bound.update(Batch({1, 1, 1})).ok());  // 9 pages
  CHECK(bound.update(Batch({1}, 10)).path == "tensors.page_indices");
  Batch pool({1});
  const std::vector<std::int32_t> pages{0, 128, 1};
  Workload workload = pool.workload();
  workload.page_indices = pages;
  workload.pool_pages = 129;
  CHECK(bound.plan->update(workload, nullptr).path == "tensors.k");
  workload.pool_pages = 128;
  CHECK(bound.plan->update(workload, nullptr).code == Code::kWorkloadInvalid);  // page 128
}

TEST_CASE("nothing stands in for the kernel of a graph plan") {
  StubEngine one({.root = ""});
  Bound before(one, kDecode, {});
  REQUIRE(before.update(Batch({1})).ok());  // what could stand in
  Bound bound(one, kMixed, {.policy = {.policy = Policy::kFallback}, .graph = true});
  REQUIRE(bound.update(Batch({300})).ok());
  CHECK(bound.query_tiles() == std::vector<int>{16, 128});
  CHECK(one.engine->counters().fallbacks == 0);
}

TEST_CASE("a budget of SMs or CTAs bounds every launch, and more than there are is refused") {
  StubEngine one({.root = ""});  // 4 SMs
  Bound all(one, kMixed, {});
  REQUIRE(all.update(Batch({1})).ok());
  PlanLimits limits = kMixed;
  limits.sm_count = 3;
  Bound some(one, limits, {});
  REQUIRE(some.update(Batch({1})).ok());
  CHECK(some.plan->plan()->grid * 4 == all.plan->plan()->grid * 3);
  CHECK(some.plan->workspace_bytes() < all.plan->workspace_bytes());
  limits.max_ctas = 5;
  Bound fewest(one, limits, {});
  REQUIRE(fewest.update(Batch({1, 1, 1})).ok());
  auto tensors = tensors_for(4, 128);
  REQUIRE(fewest.plan->run(tensors, nullptr).ok());
  CHECK(one.device->launches.back().grid == 5);

  const auto refused = [&](const PlanLimits& given) {
    const auto made = PlanObject::create(one.open(auto_spec()), given);
    CHECK(made.status().code == Code::kArgumentInvalid);
    return made.status().path;
  };
  limits.sm_count = 5;
  CHECK(refused(limits) == "limits.sm_budget");
  limits.sm_count = -1;
  CHECK(refused(limits) == "limits.sm_budget");
  limits.sm_count = 4;
  limits.max_ctas = 17;  // 16 of the smallest class are resident
  CHECK(refused(limits) == "limits.max_ctas");
  limits.max_ctas = -1;
  CHECK(refused(limits) == "limits.max_ctas");
  limits.max_ctas = 16;
  CHECK(PlanObject::create(one.open(auto_spec()), limits).ok());
  CHECK(PlanObject::create(one.open(auto_spec()), limits, {.kernel = 3}).status().path ==
        "limits.max_ctas");  // fewer of that one's are resident
}

TEST_CASE("a batch-invariant plan has the same kernel for a decode as for a prefill") {
  StubEngine one({.root = ""});
  PlanLimits limits = kMixed;
  limits.batch_invariant = true;
  Bound bound(one, limits, {});
  for (const Batch& batch : {Batch({1}), Batch({300}), Batch({1, 300})}) {
    REQUIRE(bound.update(batch).ok());
    CHECK(bound.query_tiles() == std::vector<int>{16, 128});
  }
  // Nor do the limits choose it.
  PlanLimits decode = kDecode;
  decode.batch_invariant = true;
  Bound graph(one, decode, {.graph = true});
  REQUIRE(graph.update(Batch({1})).ok());
  CHECK(graph.query_tiles() == std::vector<int>{16, 128});
}

// A decode step after another, every request a token longer: nothing of the step before is left.
TEST_CASE("a plan that is renewed in place is that of a new plan object, step for step") {
  StubEngine one({.root = ""});
  Bound bound(one, kDecode, {});
  for (int step = 0; step < 64; ++step) {
    Batch batch({1, 1, 1, 1}, 20 + step / 16);
    for (std::int32_t& last : batch.last) last = 1 + step % 16;
    REQUIRE(bound.update(batch).ok());
    Bound fresh(one, kDecode, {});
    REQUIRE(fresh.update(batch).ok());
    std::vector<std::byte> renewed = bound.plan->plan()->block;
    std::memset(renewed.data() + offsetof(loom::PlanHeader, generation), 0, 8);
    std::vector<std::byte> made = fresh.plan->plan()->block;
    std::memset(made.data() + offsetof(loom::PlanHeader, generation), 0, 8);
    REQUIRE(renewed == made);
  }
}

}  // namespace
}  // namespace attnloom
