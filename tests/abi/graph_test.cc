// SPDX-License-Identifier: Apache-2.0
// CUDA graphs as a user of the C interface meets them: a plan for captured runs, what is refused,
// and how a stale replay is told.
#include "abi/handles.h"
#include "abi_fixture.h"
#include "engine/stubs.h"

namespace {

const std::string kSpec =
    R"({"attnloom": 1, "kernel": "attention", "dtype": {"q": "bf16", "kv": "bf16", "o": "bf16"},
"head_dim": {"qk": 64, "vo": 64}, "group_size": 2, "layout": {"kv": "ragged"},
"variant": {"name": "plain"}})";

alm_tensor dense(alm_dtype dtype, std::uintptr_t address,
                 std::initializer_list<std::int64_t> shape) {
  alm_tensor tensor = {};
  tensor.data = reinterpret_cast<void*>(address);
  tensor.dtype = dtype;
  for (const std::int64_t extent : shape) tensor.shape[tensor.rank++] = extent;
  std::int64_t stride = 1;
  for (int i = tensor.rank - 1; i >= 0; --i) {
    tensor.strides[i] = stride;
    stride *= tensor.shape[i];
  }
  return tensor;
}

// A batch of one request, and its arrays.
struct One {
  One(std::int32_t queries, std::int32_t keys) : qo{0, queries}, kv{0, keys} {
    workload.struct_bytes = sizeof workload;
    workload.qo_indptr = {qo, 2, 1, ALM_I32};
    workload.kv_indptr = {kv, 2, 1, ALM_I32};
  }
  One(const One&) = delete;
  std::int32_t qo[2];
  std::int32_t kv[2];
  alm_workload workload = {};
};

struct Rig {
  attnloom::StubEngine stubs{{.root = ""}};
  alm_context context{std::move(stubs.engine)};
  alm_kernel* kernel = nullptr;
  alm_plan* plan = nullptr;
  alm_plan_limits limits = {sizeof limits, 2, 200, 4, 2};
  alm_plan_sizes sizes = {sizeof sizes, 0, 0};
  std::vector<std::byte> staging;

  Rig() {
    REQUIRE(alm_kernel_open(&context, kSpec.data(), kSpec.size(), &kernel, nullptr) == ALM_OK);
  }
  ~Rig() {
    alm_plan_destroy(plan);
    alm_kernel_destroy(kernel);
  }
  alm_plan* make_plan(void* workspace, std::vector<std::byte>& memory) {
    alm_plan* made = nullptr;
    REQUIRE(alm_plan_create(kernel, &limits, &made, &sizes, nullptr) == ALM_OK);
    memory.resize(sizes.staging_bytes);
    REQUIRE(alm_plan_bind(made, workspace, sizes.workspace_bytes, memory.data(), memory.size(),
                          nullptr) == ALM_OK);
    return made;
  }
  Told update(const One& one) {
    return tell([&](alm_error** e) { return alm_plan_update(plan, &one.workload, nullptr, e); });
  }
  Told check(const One& one) {
    return tell([&](alm_error** e) { return alm_plan_check(plan, &one.workload, nullptr, e); });
  }
  Told run(std::int64_t tokens, std::int64_t keys) {
    alm_attention tensors = {};
    tensors.struct_bytes = sizeof tensors;
    tensors.q = dense(ALM_BF16, 0x20000, {tokens, 4, 64});
    tensors.k = tensors.v = dense(ALM_BF16, 0x200000, {keys, 2, 64});
    tensors.o = dense(ALM_BF16, 0x100000000, {tokens, 4, 64});
    return tell([&](alm_error** e) { return alm_run(plan, &tensors, nullptr, e); });
  }
};

void* const kWorkspace = reinterpret_cast<void*>(0x10000);

TEST_CASE("a plan for graphs loads its kernel at once; later calls compile and load nothing") {
  Rig rig;
  rig.limits.graph = 1;
  rig.plan = rig.make_plan(kWorkspace, rig.staging);
  CHECK(rig.stubs.device->loads == 1);
  const One first(1, 10);
  const One longer(150, 1000);
  REQUIRE(rig.update(first).code == ALM_OK);
  rig.stubs.device->capturing = true;
  CHECK(rig.run(200, 2000).code == ALM_OK);
  CHECK(rig.update(longer).code == ALM_CAPTURE_ACTIVE);
  rig.stubs.device->capturing = false;
  CHECK(rig.update(longer).code == ALM_OK);
  const Told refused = rig.update(One(1, 2001));
  CHECK(refused.code == ALM_PLAN_BOUND);
  CHECK(refused.path == "tensors.k");
  CHECK(rig.check(longer).code == ALM_OK);  // the last good one stays
  CHECK(rig.stubs.device->loads == 1);
  CHECK(rig.stubs.compiler->compiles == 1);
}

TEST_CASE("without it a captured run holds later updates to its kernel") {
  Rig rig;
  rig.plan = rig.make_plan(kWorkspace, rig.staging);
  REQUIRE(rig.update(One(1, 10)).code == ALM_OK);
  rig.stubs.device->capturing = true;
  CHECK(rig.run(200, 2000).code == ALM_OK);
  rig.stubs.device->capturing = false;
  CHECK(rig.update(One(150, 1000)).code == ALM_PLAN_MISMATCH);
  CHECK(rig.update(One(2, 1000)).code == ALM_OK);
}

// B53.
TEST_CASE("alm_plan_check tells lengths that nobody planned, and a workspace of another plan") {
  Rig rig;
  rig.limits.graph = 1;
  rig.plan = rig.make_plan(kWorkspace, rig.staging);
  const One one(1, 1);
  const One grown(1, 1600);
  CHECK(rig.check(one).code == ALM_PLAN_STALE);  // before any update
  REQUIRE(rig.update(one).code == ALM_OK);
  CHECK(rig.check(one).code == ALM_OK);
  CHECK(rig.check(grown).code == ALM_PLAN_STALE);
  REQUIRE(rig.update(grown).code == ALM_OK);
  CHECK(rig.check(grown).code == ALM_OK);
  std::vector<std::byte> memory;
  alm_plan* other = rig.make_plan(kWorkspace, memory);
  for (int i = 0; i < 2; ++i)  // the same generation, of another object
    REQUIRE(alm_plan_update(other, &one.workload, nullptr, nullptr) == ALM_OK);
  const Told overwritten = rig.check(grown);
  CHECK(overwritten.code == ALM_PLAN_STALE);
  CHECK(overwritten.path == "workspace");
  alm_plan_destroy(other);
}

}  // namespace
