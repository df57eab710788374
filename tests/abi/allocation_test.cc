// SPDX-License-Identifier: Apache-2.0
// alm_run allocates nothing on the host: counted by operator new of this program.
#include <catch2/catch.hpp>

#include "abi/handles.h"
#include "abi_fixture.h"
#include "count_allocations.h"
#include "engine/stubs.h"

namespace {

// A device whose launches do nothing at all.
class SilentBackend : public attnloom::StubBackend {
 public:
  using StubBackend::StubBackend;
  attnloom::Status launch(attnloom::LoadedKernel&, const attnloom::LaunchShape&,
                          std::span<const std::byte>, attnloom::Stream) override {
    ++launches;
    return {};
  }
  attnloom::Status copy_in_async(attnloom::DeviceAddress, std::span<const std::byte>,
                                 attnloom::Stream) override {
    return {};
  }
  inline static int launches = 0;
};

const std::string kSpecWithParam =
    R"({"attnloom": 1, "kernel": "attention", "dtype": {"q": "bf16", "kv": "bf16", "o": "bf16"},
"head_dim": {"qk": 64, "vo": 64}, "group_size": 2, "layout": {"kv": "ragged"}, "tile": {"q": 16, "kv": 64},
"variant": {"name": "alibi", "params": [{"name": "slopes_of_all_the_query_heads", "type": "ptr<f32>"}],
"logits_transform": "return logits - slopes_of_all_the_query_heads[q_head];"}})";

alm_tensor dense(alm_dtype dtype, std::initializer_list<std::int64_t> shape) {
  alm_tensor tensor = {};
  tensor.data = reinterpret_cast<void*>(0x20000);
  tensor.dtype = dtype;
  for (const std::int64_t extent : shape) tensor.shape[tensor.rank++] = extent;
  std::int64_t stride = 1;
  for (int i = tensor.rank - 1; i >= 0; --i) {
    tensor.strides[i] = stride;
    stride *= tensor.shape[i];
  }
  return tensor;
}

attnloom::EngineOptions silent_options() {
  attnloom::EngineOptions options;
  options.make_backend = []() -> attnloom::Result<std::unique_ptr<attnloom::Backend>> {
    return std::unique_ptr<attnloom::Backend>(
        std::make_unique<SilentBackend>(std::make_shared<attnloom::DeviceScript>()));
  };
  options.toolchain =
      std::make_unique<attnloom::StubToolchain>(std::make_shared<attnloom::CompilerScript>());
  options.files = attnloom::make_real_file_system();
  return options;
}

TEST_CASE("after the first run of a plan, alm_run allocates nothing") {
  alm_context context = {std::make_unique<attnloom::Engine>(silent_options())};
  alm_kernel* kernel = nullptr;
  const Told opened = tell([&](alm_error** error) {
    return alm_kernel_open(&context, kSpecWithParam.data(), kSpecWithParam.size(), &kernel, error);
  });
  INFO(opened.path << " " << opened.cause);
  REQUIRE(opened.code == ALM_OK);
  alm_plan_limits limits = {sizeof limits, 1, 1, 4, 2};
  alm_plan_sizes sizes = {sizeof sizes, 0, 0};
  alm_plan* plan = nullptr;
  REQUIRE(alm_plan_create(kernel, &limits, &plan, &sizes, nullptr) == ALM_OK);
  std::vector<std::byte> staging(sizes.staging_bytes);
  REQUIRE(alm_plan_bind(plan, reinterpret_cast<void*>(0x10000), sizes.workspace_bytes,
                        staging.data(), staging.size(), nullptr) == ALM_OK);
  const std::int32_t qo[] = {0, 1};
  const std::int32_t kv[] = {0, 3};
  alm_workload workload = {};
  workload.struct_bytes = sizeof workload;
  workload.qo_indptr = {qo, 2, 1, ALM_I32};
  workload.kv_indptr = {kv, 2, 1, ALM_I32};
  REQUIRE(alm_plan_update(plan, &workload, nullptr, nullptr) == ALM_OK);

  const alm_pointer_param slopes = {"slopes_of_all_the_query_heads", dense(ALM_F32, {4})};
  alm_attention tensors = {};
  tensors.struct_bytes = sizeof tensors;
  tensors.q = dense(ALM_BF16, {1, 4, 64});
  tensors.k = dense(ALM_BF16, {3, 2, 64});
  tensors.v = tensors.k;
  tensors.o = tensors.q;
  tensors.o.data = reinterpret_cast<void*>(0x40000);  // behind q, k and v
  tensors.params = &slopes;
  tensors.param_count = 1;
  alm_error* error = nullptr;
  REQUIRE(alm_run(plan, &tensors, nullptr, &error) == ALM_OK);
  const long before = allocations_so_far();
  int failed = 0;
  for (int i = 0; i < 10; ++i) failed += alm_run(plan, &tensors, nullptr, &error) != ALM_OK;
  const long after = allocations_so_far();
  CHECK(after == before);
  CHECK(failed == 0);
  CHECK(SilentBackend::launches == 11);
  alm_plan_destroy(plan);
  alm_kernel_destroy(kernel);
}

// What the plan itself needs is the planner's own affair.
TEST_CASE("an update of a plan allocates no more than planning does") {
  alm_context context = {std::make_unique<attnloom::Engine>(silent_options())};
  const std::string spec =
      R"({"attnloom": 1, "kernel": "attention", "dtype": {"q": "bf16", "kv": "bf16", "o": "bf16"},
"head_dim": {"qk": 64, "vo": 64}, "group_size": 2, "layout": {"kv": "ragged"},
"variant": {"name": "capped", "params": [{"name": "cap_of_all_the_query_heads", "type": "f32"}],
"logits_transform": "return cap_of_all_the_query_heads * logits;"}})";
  alm_kernel* kernel = nullptr;
  REQUIRE(alm_kernel_open(&context, spec.data(), spec.size(), &kernel, nullptr) == ALM_OK);
  alm_plan_limits limits = {};
  limits.struct_bytes = sizeof limits;
  limits.max_batch = 4;
  limits.max_qo_tokens = 400;
  limits.q_heads = 4;
  limits.kv_heads = 2;
  limits.graph = GENERATE(0, 1);
  alm_plan_sizes sizes = {sizeof sizes, 0, 0};
  alm_plan* plan = nullptr;
  REQUIRE(alm_plan_create(kernel, &limits, &plan, &sizes, nullptr) == ALM_OK);
  std::vector<std::byte> staging(sizes.staging_bytes);
  REQUIRE(alm_plan_bind(plan, reinterpret_cast<void*>(0x10000), sizes.workspace_bytes,
                        staging.data(), staging.size(), nullptr) == ALM_OK);
  const std::int32_t qo[] = {0, 1, 300, 301};
  const std::int32_t kv[] = {0, 3000, 3300, 9000};
  const alm_scalar cap = {"cap_of_all_the_query_heads", 30};
  alm_workload workload = {};
  workload.struct_bytes = sizeof workload;
  workload.qo_indptr = {qo, 4, 1, ALM_I32};
  workload.kv_indptr = {kv, 4, 1, ALM_I32};
  workload.scalars = &cap;
  workload.scalar_count = 1;
  for (int i = 0; i < 3; ++i)  // the last two take turns with their memory
    REQUIRE(alm_plan_update(plan, &workload, nullptr, nullptr) == ALM_OK);

  // The same plan made directly, in memory of the same size.
  const attnloom::KernelSet& kernels = plan->plan->kernels();
  std::vector<attnloom::KernelChoice> choices = kernels.choices();
  const int used = plan->plan->plan()->kernel;
  if (limits.graph != 0) choices = {choices[used]};
  const attnloom::PlanLimits same = {
      .max_batch = 4, .max_qo_tokens = 400, .q_heads = 4, .kv_heads = 2, .sm_count = 4};
  attnloom::Workload direct;
  direct.q_heads = 4;
  direct.kv_heads = 2;
  direct.qo_indptr = qo;
  direct.kv_indptr = kv;
  direct.scalars = {{cap.name, cap.value}};
  std::vector<std::byte> storage = plan->plan->plan()->block;
  long before = allocations_so_far();
  const auto made =
      attnloom::make_plan(kernels.spec(), choices, same, direct, 5, {}, std::move(storage));
  const long of_planning = allocations_so_far() - before;
  REQUIRE(made.ok());
  REQUIRE(made->block.size() == plan->plan->plan()->block.size());

  before = allocations_so_far();
  REQUIRE(alm_plan_update(plan, &workload, nullptr, nullptr) == ALM_OK);
  const long of_update = allocations_so_far() - before;
  CHECK(of_update <= of_planning);
  alm_plan_destroy(plan);
  alm_kernel_destroy(kernel);
}

TEST_CASE("after the first run of a kernel, alm_append_run allocates nothing") {
  alm_context context = {std::make_unique<attnloom::Engine>(silent_options())};
  const std::string spec =
      R"({"attnloom": 1, "kernel": "append_rope", "dtype": {"q": "bf16", "kv": "bf16"},
"head_dim": {"qk": 64, "vo": 64}, "layout": {"kv": "paged", "page_size": 16},
"variant": {"rope": {"style": "neox"}}})";
  alm_kernel* kernel = nullptr;
  REQUIRE(alm_kernel_open(&context, spec.data(), spec.size(), &kernel, nullptr) == ALM_OK);
  alm_append tensors = {};
  tensors.struct_bytes = sizeof tensors;
  tensors.key = tensors.value = dense(ALM_BF16, {3, 2, 64});
  tensors.batch_indices = tensors.positions = dense(ALM_I32, {3});
  tensors.page_indptr = tensors.page_indices = dense(ALM_I32, {2});
  tensors.k_cache = tensors.v_cache = dense(ALM_BF16, {4, 16, 2, 64});
  tensors.k_cache.data = reinterpret_cast<void*>(0x40000);
  tensors.v_cache.data = reinterpret_cast<void*>(0x80000);
  const Told first =
      tell([&](alm_error** error) { return alm_append_run(kernel, &tensors, nullptr, error); });
  INFO(first.path << " " << first.cause);
  REQUIRE(first.code == ALM_OK);
  alm_error* error = nullptr;
  const long before = allocations_so_far();
  int failed = 0;
  for (int i = 0; i < 10; ++i)
    failed += alm_append_run(kernel, &tensors, nullptr, &error) != ALM_OK;
  const long after = allocations_so_far();
  CHECK(after == before);
  CHECK(failed == 0);
  alm_kernel_destroy(kernel);
}

}  // namespace
