// SPDX-License-Identifier: Apache-2.0
#include "engine/plan_object.h"

#include <catch2/catch.hpp>

#include "engine/stubs.h"

namespace attnloom {
namespace {

constexpr DeviceAddress kWorkspace = 0x100000;
constexpr PlanLimits kLimits = {.max_batch = 4, .max_qo_tokens = 64, .q_heads = 4, .kv_heads = 2};

// One request over `pages` full pages.
struct Batch {
  explicit Batch(int pages, int queries = 1) : qo{0, queries}, kv{0, pages} {}
  std::vector<std::int32_t> qo;
  std::vector<std::int32_t> kv;
  std::vector<std::int32_t> last{16};
  Workload workload() const {
    Workload made;
    made.qo_indptr = qo;
    made.kv_indptr = kv;
    made.last_page_len = last;
    return made;
  }
};

constexpr DeviceAddress kInputs = 0x200000;
constexpr DeviceAddress kOutputs = 0x100000000;  // behind the largest input

TensorView tensor(std::initializer_list<std::int64_t> shape, TensorType type = TensorType::kBf16,
                  DeviceAddress data = kInputs) {
  return dense_tensor(type, std::span(shape.begin(), shape.size()), data);
}

AttentionTensors decode_tensors() {
  AttentionTensors tensors;
  tensors.q = tensor({1, 4, 64});
  tensors.k = tensor({128, 16, 2, 64});
  tensors.v = tensor({128, 16, 2, 64});
  tensors.o = tensor({1, 4, 64}, TensorType::kBf16, kOutputs);
  tensors.page_indices = tensor({128}, TensorType::kI32);
  return tensors;
}

struct Bound {
  std::unique_ptr<PlanObject> plan;
  std::vector<std::byte> staging;

  Bound(StubEngine& one, const std::string& spec, DeviceAddress workspace) {
    auto made = PlanObject::create(one.open(spec), kLimits);
    INFO(made.status().to_string());
    REQUIRE(made.ok());
    plan = std::move(made).value();
    staging.resize(plan->staging_bytes());
    REQUIRE(plan->bind(workspace, plan->workspace_bytes(), staging.data(), staging.size()).ok());
  }
};

loom::PlanHeader header_in(const std::vector<std::byte>& bytes) {
  loom::PlanHeader header = {};
  REQUIRE(bytes.size() >= sizeof(header));
  std::memcpy(&header, bytes.data(), sizeof(header));
  return header;
}

// Of the first request in a plan block.
int kv_len_in(const std::vector<std::byte>& bytes) {
  loom::RequestRow row = {};
  std::memcpy(&row, bytes.data() + header_in(bytes).requests_offset, sizeof(row));
  return row.kv_len;
}

TEST_CASE("update compiles what it needs, copies once and run launches once") {
  StubEngine one({.root = ""});
  Bound bound(one, auto_spec(), kWorkspace);
  REQUIRE(bound.plan->update(Batch(3).workload(), nullptr).ok());
  auto tensors = decode_tensors();
  REQUIRE(bound.plan->run(tensors, nullptr).ok());
  REQUIRE(bound.plan->run(tensors, nullptr).ok());
  const EngineCounters counters = one.engine->counters();
  CHECK(counters.compiles == 1);
  CHECK(counters.loads == 1);
  CHECK(counters.copies == 1);
  CHECK(counters.launches == 2);
  REQUIRE(one.device->launches.size() == 2);
  CHECK(one.device->launches[0].grid == static_cast<unsigned>(bound.plan->plan()->grid));
  CHECK(one.device->launches[0].block == 128);
  CHECK(kv_len_in(one.device->workspace_at_launch[0]) == 48);
  loom::AttentionArgs args = {};
  REQUIRE(one.device->launch_arguments[0].size() == sizeof(args));
  std::memcpy(&args, one.device->launch_arguments[0].data(), sizeof(args));
  CHECK(reinterpret_cast<DeviceAddress>(args.workspace) == kWorkspace);
}

// B45: two plans in a row, the copies still pending when the second is made.
TEST_CASE("two updates in flight keep their own staging, a third waits for the first") {
  StubEngine one({.root = ""});
  Bound bound(one, one_kernel_spec(), kWorkspace);
  REQUIRE(bound.plan->update(Batch(4).workload(), nullptr).ok());
  REQUIRE(bound.plan->update(Batch(1).workload(), nullptr).ok());
  REQUIRE(one.device->pending.size() == 2);
  const auto bytes = [](const LateCopy& copy) {
    return std::vector<std::byte>(copy.from.begin(), copy.from.end());
  };
  CHECK(kv_len_in(bytes(one.device->pending[0])) == 64);
  CHECK(kv_len_in(bytes(one.device->pending[1])) == 16);
  CHECK(header_in(bytes(one.device->pending[0])).generation == 1);
  CHECK(header_in(bytes(one.device->pending[1])).generation == 2);
  REQUIRE(bound.plan->update(Batch(2).workload(), nullptr).ok());
  CHECK(one.device->pending.size() ==
        1);  // the first two were performed before their halves were touched
  CHECK(one.device->waits == 3);
}

TEST_CASE("a kernel launched into a capture stays loaded for the life of the engine") {
  StubEngine one(
      {.root = "", .more = [](EngineOptions& options) { options.most_loaded_kernels = 1; }});
  int stream = 0;
  auto tensors = decode_tensors();
  {
    Bound captured(one, one_kernel_spec(), kWorkspace);
    REQUIRE(captured.plan->update(Batch(1).workload(), &stream).ok());
    one.device->capturing = true;
    REQUIRE(captured.plan->run(tensors, &stream).ok());
    one.device->capturing = false;
  }
  {
    Bound eager(one, one_kernel_spec("", "", 128), 2 * kWorkspace);
    REQUIRE(eager.plan->update(Batch(1).workload(), &stream).ok());
    REQUIRE(eager.plan->run(tensors, &stream).ok());
  }
  one.wait_until_idle();
  one.acquire(one_kernel_spec(R"("logits_transform": "return logits;")"));
  CHECK(one.device->unloads == 1);  // the eager one
  CHECK(one.acquire(one_kernel_spec()).origin == Origin::kMemory);
  CHECK(one.device->loads == 3);
}

TEST_CASE("two plans never share staging or workspace") {
  StubEngine one({.root = ""});
  Bound a(one, one_kernel_spec(), kWorkspace);
  Bound b(one, one_kernel_spec(), 2 * kWorkspace);
  REQUIRE(a.plan->update(Batch(4).workload(), nullptr).ok());
  REQUIRE(b.plan->update(Batch(1).workload(), nullptr).ok());
  auto tensors = decode_tensors();
  REQUIRE(a.plan->run(tensors, nullptr).ok());
  REQUIRE(b.plan->run(tensors, nullptr).ok());
  CHECK(kv_len_in(one.device->workspace_at_launch[0]) == 64);
  CHECK(kv_len_in(one.device->workspace_at_launch[1]) == 16);
}

TEST_CASE("run before update, and calls in the wrong order, are refused by name") {
  StubEngine one({.root = ""});
  auto plan = PlanObject::create(one.open(one_kernel_spec()), kLimits).value();
  std::vector<std::byte> staging(plan->staging_bytes());
  auto tensors = decode_tensors();
  CHECK(plan->update(Batch(1).workload(), nullptr).path == "workspace");
  CHECK(plan->bind(kWorkspace + 16, plan->workspace_bytes(), staging.data(), staging.size()).code ==
        Code::kArgumentInvalid);
  CHECK(plan->bind(kWorkspace, plan->workspace_bytes() - 1, staging.data(), staging.size()).code ==
        Code::kPlanBound);
  CHECK(plan->bind(kWorkspace, plan->workspace_bytes(), staging.data(), staging.size() - 1).path ==
        "staging_bytes");
  REQUIRE(plan->bind(kWorkspace, plan->workspace_bytes(), staging.data(), staging.size()).ok());
  CHECK(plan->bind(kWorkspace, plan->workspace_bytes(), staging.data(), staging.size()).code ==
        Code::kArgumentInvalid);
  CHECK(plan->run(tensors, nullptr).code == Code::kPlanStale);
  CHECK(one.device->launches.empty());
}

TEST_CASE("memory at an address that is no multiple of what the plan needs is refused") {
  StubEngine one({.root = ""});
  auto plan = PlanObject::create(one.open(one_kernel_spec()), kLimits).value();
  const std::size_t bytes = plan->staging_bytes();
  std::vector<std::byte> staging(bytes + 16);
  Status status = plan->bind(kWorkspace, plan->workspace_bytes(), staging.data() + 1, bytes);
  CHECK(status.code == Code::kArgumentInvalid);
  CHECK(status.path == "staging");
  CHECK(status.cause == "must be a host address that is a multiple of 16 bytes, given remainder 1");
  CHECK(plan->bind(kWorkspace, plan->workspace_bytes(), nullptr, bytes).cause ==
        "must be a host address that is a multiple of 16 bytes, given null");
  status = plan->bind(kWorkspace + 16, plan->workspace_bytes(), staging.data(), bytes);
  CHECK(status.path == "workspace");
  CHECK(status.cause ==
        "must be a device address that is a multiple of 256 bytes, given remainder 16");
  CHECK(plan->bind(kWorkspace, plan->workspace_bytes(), staging.data(), bytes).ok());
}

TEST_CASE("a refused update leaves the last plan in use") {
  StubEngine one({.root = ""});
  Bound bound(one, one_kernel_spec(), kWorkspace);
  REQUIRE(bound.plan->update(Batch(4).workload(), nullptr).ok());
  Batch bad(2);
  bad.last[0] = 17;
  CHECK(bound.plan->update(bad.workload(), nullptr).code == Code::kWorkloadInvalid);
  CHECK(bound.plan->generation() == 1);
  auto tensors = decode_tensors();
  REQUIRE(bound.plan->run(tensors, nullptr).ok());
  CHECK(kv_len_in(one.device->workspace_at_launch[0]) == 64);
}

TEST_CASE("bad tensors never reach a launch") {
  StubEngine one({.root = ""});
  Bound bound(one, one_kernel_spec(), kWorkspace);
  REQUIRE(bound.plan->update(Batch(4).workload(), nullptr).ok());
  auto tensors = decode_tensors();
  tensors.q.type = TensorType::kF16;
  CHECK(bound.plan->run(tensors, nullptr).code == Code::kTensorInvalid);
  CHECK(one.device->launches.empty());
}

TEST_CASE(
    "tensors of another shape, of another kernel or too small for the last plan are refused") {
  StubEngine one({.root = ""});
  Bound bound(one, one_kernel_spec(), kWorkspace);
  REQUIRE(bound.plan->update(Batch(100).workload(), nullptr).ok());
  const AttentionTensors good = decode_tensors();
  const auto refused = [&](auto change) {
    AttentionTensors tensors = good;
    change(tensors);
    const Status status = bound.plan->run(tensors, nullptr);
    CHECK(status.code == Code::kTensorInvalid);
    return status.path.substr(0, status.path.find_first_of(".["));
  };
  using Tensors = AttentionTensors;
  CHECK(refused([](Tensors& t) { t.q = tensor({1, 2, 64}); }) == "q");         // other heads
  CHECK(refused([](Tensors& t) { t.q = tensor({0, 4, 64}); }) == "q");         // no room
  CHECK(refused([](Tensors& t) { t.k = tensor({128, 16, 2, 128}); }) == "k");  // other head dim
  CHECK(refused([](Tensors& t) { t.k = tensor({128, 32, 2, 64}); }) == "k");   // other page size
  CHECK(refused([](Tensors& t) { t.k = tensor({2048, 2, 64}); }) == "k");      // ragged
  CHECK(refused([](Tensors& t) { t.v = tensor({127, 16, 2, 64}); }) == "v");   // another pool
  CHECK(refused([](Tensors& t) { t.page_indices = tensor({99}, TensorType::kI32); }) ==
        "page_indices");
  CHECK(refused([](Tensors& t) { t.block_indices = tensor({9}, TensorType::kI32); }) ==
        "block_indices");
  REQUIRE(bound.plan->update(Batch(128, 2).workload(), nullptr).ok());
  CHECK(refused([](Tensors&) {}) == "q");  // two tokens now
  CHECK(one.device->launches.empty());
  REQUIRE(bound.plan->update(Batch(128).workload(), nullptr).ok());
  Tensors fitting = good;
  CHECK(bound.plan->run(fitting, nullptr).ok());
}

TEST_CASE("an update during a capture is refused, a run is not") {
  StubEngine one({.root = ""});
  Bound bound(one, one_kernel_spec(), kWorkspace);
  REQUIRE(bound.plan->update(Batch(4).workload(), nullptr).ok());
  one.device->capturing = true;
  CHECK(bound.plan->update(Batch(1).workload(), nullptr).code == Code::kCaptureActive);
  CHECK(one.engine->counters().copies == 1);
  auto tensors = decode_tensors();
  CHECK(bound.plan->run(tensors, nullptr).ok());
}

// B53, the variant without a plan: lengths grew, nobody planned, the graph is replayed.
TEST_CASE("check finds a stale plan and a workspace that holds another one") {
  StubEngine one({.root = ""});
  Bound bound(one, one_kernel_spec(), kWorkspace);
  REQUIRE(bound.plan->update(Batch(1).workload(), nullptr).ok());
  CHECK(bound.plan->check(Batch(1).workload(), nullptr).ok());
  CHECK(bound.plan->check(Batch(100).workload(), nullptr).code == Code::kPlanStale);
  REQUIRE(bound.plan->update(Batch(100).workload(), nullptr).ok());
  CHECK(bound.plan->check(Batch(100).workload(), nullptr).ok());
  Bound other(one, one_kernel_spec(), kWorkspace);
  for (int i = 0; i < 3; ++i) REQUIRE(other.plan->update(Batch(2).workload(), nullptr).ok());
  const Status overwritten = bound.plan->check(Batch(100).workload(), nullptr);
  CHECK(overwritten.code == Code::kPlanStale);
  CHECK(overwritten.path == "workspace");
}

TEST_CASE("a kernel that steps down while planning is planned for again with its own tiles") {
  StubEngine one({.root = ""});
  one.compiler->spill_bytes = [&](const Source&) { return one.compiler->compiles == 1 ? 4 : 0; };
  const auto kernels = one.open(auto_spec());
  const std::vector<KernelChoice> before = kernels->choices();
  const int wanted = kernel_that_can_step_down(*kernels);
  // More rows than a decode has: the last kernel of the set, which is that of warpgroups.
  const int queries = static_cast<int>(kLimits.max_qo_tokens);
  auto plan = PlanObject::create(kernels, kLimits).value();
  std::vector<std::byte> staging(plan->staging_bytes());
  REQUIRE(plan->bind(kWorkspace, 2 * plan->workspace_bytes(), staging.data(), staging.size()).ok());
  const Status updated = plan->update(Batch(101, queries).workload(), nullptr);
  INFO(updated.to_string());
  REQUIRE(updated.ok());
  const int used = plan->plan()->kernel;
  CHECK(used == wanted);
  CHECK(kernels->acquired(used)->choice != before[used]);
  CHECK(kernels->choices()[used] == kernels->acquired(used)->choice);
  CHECK(one.engine->counters().step_downs == 1);
  CHECK(plan->check(Batch(101, queries).workload(), nullptr).ok());  // planned with the new tiles
}

TEST_CASE("without a device plans are made and described, and nothing is copied") {
  StubEngine one({.root = "", .has_device = false});
  auto plan =
      PlanObject::create(one.open(one_kernel_spec("", R"("target": "sm_90a", )")), kLimits).value();
  REQUIRE(plan->update(Batch(5).workload(), nullptr).ok());
  CHECK(plan->plan() != nullptr);
  CHECK(plan->describe()["generation"] == 1);
  auto tensors = decode_tensors();
  CHECK(plan->run(tensors, nullptr).code == Code::kNoDevice);
}

}  // namespace
}  // namespace attnloom
