// SPDX-License-Identifier: Apache-2.0
// alm_run and repeated alm_plan_update allocate nothing on the host: counted by operator new of
// this program.
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

// A plan of the silent device, and what its updates allocate.
class Updates {
 public:
  Updates(const std::string& spec, alm_plan_limits limits) : context_{engine()} {
    const Told opened = tell([&](alm_error** error) {
      return alm_kernel_open(&context_, spec.data(), spec.size(), &kernel_, error);
    });
    INFO(opened.path << " " << opened.cause);
    REQUIRE(opened.code == ALM_OK);
    limits.struct_bytes = sizeof limits;
    limits.q_heads = 4;
    limits.kv_heads = 2;
    alm_plan_sizes sizes = {sizeof sizes, 0, 0};
    REQUIRE(alm_plan_create(kernel_, &limits, &plan_, &sizes, nullptr) == ALM_OK);
    staging_.resize(sizes.staging_bytes);
    REQUIRE(alm_plan_bind(plan_, reinterpret_cast<void*>(0x10000), sizes.workspace_bytes,
                          staging_.data(), staging_.size(), nullptr) == ALM_OK);
  }
  ~Updates() {
    alm_plan_destroy(plan_);
    alm_kernel_destroy(kernel_);
  }
  long allocations(const alm_workload& workload) {
    const long before = allocations_so_far();
    const alm_code code = alm_plan_update(plan_, &workload, nullptr, nullptr);
    const long after = allocations_so_far();
    CHECK(code == ALM_OK);
    return after - before;
  }
  const attnloom::Plan& plan() const { return *plan_->plan->plan(); }

 private:
  static std::unique_ptr<attnloom::Engine> engine() {
    return std::make_unique<attnloom::Engine>(silent_options());
  }
  alm_context context_;
  alm_kernel* kernel_ = nullptr;
  alm_plan* plan_ = nullptr;
  std::vector<std::byte> staging_;
};

alm_index_array array_of(const std::vector<std::int32_t>& values) {
  return {values.data(), static_cast<std::int64_t>(values.size()), 1, ALM_I32};
}

TEST_CASE("a second update of a plan allocates nothing") {
  const std::string spec =
      R"({"attnloom": 1, "kernel": "attention", "dtype": {"q": "bf16", "kv": "bf16", "o": "bf16"},
"head_dim": {"qk": 64, "vo": 64}, "group_size": 2, "layout": {"kv": "ragged"},
"variant": {"name": "capped", "params": [{"name": "cap_of_all_the_query_heads", "type": "f32"}],
"logits_transform": "return cap_of_all_the_query_heads * logits;"}})";
  alm_plan_limits limits = {};
  limits.max_batch = 4;
  limits.max_qo_tokens = 400;
  limits.graph = GENERATE(0, 1);
  limits.batch_invariant = GENERATE(0, 1);
  Updates updates(spec, limits);
  const std::vector<std::int32_t> qo{0, 1, 300, 301}, kv{0, 3000, 3300, 9000};
  const alm_scalar cap = {"cap_of_all_the_query_heads", 30};
  alm_workload workload = {};
  workload.struct_bytes = sizeof workload;
  workload.qo_indptr = array_of(qo);
  workload.kv_indptr = array_of(kv);
  workload.scalars = &cap;
  workload.scalar_count = 1;
  CHECK(updates.allocations(workload) > 0);
  CHECK(updates.allocations(workload) == 0);
  const std::vector<std::int32_t> fewer_qo{0, 1, 200}, fewer_kv{0, 3000, 3200};
  workload.qo_indptr = array_of(fewer_qo);
  workload.kv_indptr = array_of(fewer_kv);
  CHECK(updates.allocations(workload) == 0);
}

TEST_CASE("a second update with shared prefixes allocates nothing") {
  const std::string spec =
      R"({"attnloom": 1, "kernel": "attention", "dtype": {"q": "bf16", "kv": "bf16", "o": "bf16"},
"head_dim": {"qk": 64, "vo": 64}, "group_size": 2, "layout": {"kv": "paged", "page_size": 16},
"variant": {"name": "plain"}})";
  constexpr int kRequests = 12, kPages = 40;
  alm_plan_limits limits = {};
  limits.max_batch = kRequests;
  limits.max_qo_tokens = kRequests;
  Updates updates(spec, limits);
  std::vector<std::int32_t> qo{0}, kv{0}, last, pages;
  for (int r = 0; r < kRequests; ++r) {
    qo.push_back(r + 1);
    kv.push_back((r + 1) * kPages);
    last.push_back(16);
    for (int p = 0; p < kPages; ++p) pages.push_back(p < 32 ? p : 1000 + r * kPages + p);
  }
  alm_workload workload = {};
  workload.struct_bytes = sizeof workload;
  workload.qo_indptr = array_of(qo);
  workload.kv_indptr = array_of(kv);
  workload.last_page_len = array_of(last);
  workload.page_indices = array_of(pages);
  workload.pool_pages = 10000;
  const std::vector<std::int32_t> group{0, kRequests}, shared{0, 32};
  const alm_level level = {array_of(group), array_of(shared)};
  if (GENERATE(false, true)) {
    workload.levels = &level;
    workload.level_count = 1;
  }
  CHECK(updates.allocations(workload) > 0);
  CHECK(updates.plan().figures.prefix_tiles > 0);
  CHECK(updates.allocations(workload) == 0);
  CHECK(updates.allocations(workload) == 0);
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
