// SPDX-License-Identifier: Apache-2.0
// Policies, freeze and asynchronous preparation through the C and C++ interface, with the real
// compiler.
#include <atomic>
#include <attnloom/attnloom.hpp>
#include <thread>

#include "abi_fixture.h"

namespace {

const std::string kOneKernel =
    R"({"attnloom": 1, "kernel": "merge", "target": "sm_90a", "dtype": {"o": "f16"},
"head_dim": {"vo": 64}})";

struct Heard {
  std::atomic<int> calls{0};
  alm_code code = ALM_OK;
  std::string path;

  alm_prepare_options options() {
    alm_prepare_options made = {};
    made.struct_bytes = sizeof made;
    made.user = this;
    made.callback = [](void* user, const alm_error* error) {
      auto& heard = *static_cast<Heard*>(user);
      heard.code = error ? error->code : ALM_OK;
      heard.path = error ? error->path : "";
      ++heard.calls;
    };
    return made;
  }
};

TEST_CASE("a kernel is prepared asynchronously, told once, and then only loaded") {
  AbiFixture one;
  REQUIRE(one.open(kOneKernel).code == ALM_OK);
  Heard heard;
  const alm_prepare_options options = heard.options();
  alm_pending* pending = nullptr;
  REQUIRE(tell([&](alm_error** error) {
            return alm_kernel_prepare_async(one.kernel, &options, &pending, error);
          }).code == ALM_OK);
  int over = 0;
  CHECK(tell([&](alm_error** error) { return alm_pending_wait(pending, -1, &over, error); }).code ==
        ALM_OK);
  CHECK(over == 1);
  alm_pending_cancel(pending);
  alm_pending_destroy(pending);
  CHECK(heard.calls == 1);
  CHECK(heard.code == ALM_OK);
  // Frozen, prepare finds everything in memory.
  REQUIRE(alm_context_freeze(one.context, ALM_FREEZE_FAIL, nullptr) == ALM_OK);
  CHECK(tell([&](alm_error** error) { return alm_kernel_prepare(one.kernel, error); }).code ==
        ALM_OK);
}

TEST_CASE("an error of an asynchronous compile reaches callback and waiter") {
  AbiFixture one;
  std::string broken = kRaggedSpec;
  broken.insert(broken.find(R"("variant")"), R"("tile": {"q": 16, "kv": 64}, )");
  broken.insert(broken.find(R"("plain")") + 7, R"(, "logits_transform": "return nothing;")");
  REQUIRE(one.open(broken).code == ALM_OK);
  Heard heard;
  const alm_prepare_options options = heard.options();
  alm_pending* pending = nullptr;
  REQUIRE(alm_kernel_prepare_async(one.kernel, &options, &pending, nullptr) == ALM_OK);
  const Told told =
      tell([&](alm_error** error) { return alm_pending_wait(pending, -1, nullptr, error); });
  alm_pending_destroy(pending);
  CHECK(told.code == ALM_COMPILE_FAILED);
  CHECK(told.path == "$.variant.logits_transform");
  CHECK(told.cause.find("\"nothing\" is undefined") != std::string::npos);
  CHECK(heard.calls == 1);
  CHECK(heard.code == ALM_COMPILE_FAILED);
  CHECK(heard.path == told.path);
}

TEST_CASE("nobody need wait, and what is in flight when the context ends is over by then") {
  Heard heard;
  {
    AbiFixture one;
    REQUIRE(one.open(kRaggedSpec).code == ALM_OK);
    const alm_prepare_options options = heard.options();
    REQUIRE(alm_kernel_prepare_async(one.kernel, &options, nullptr, nullptr) == ALM_OK);
    REQUIRE(alm_kernel_prepare_async(one.kernel, nullptr, nullptr, nullptr) == ALM_OK);
  }
  CHECK(heard.calls == 1);
  CHECK(heard.code == ALM_CANCELLED);
}

TEST_CASE("a waiter's own time is told from the compile's, and cancel is told to all") {
  AbiFixture one;
  REQUIRE(one.open(kRaggedSpec).code == ALM_OK);
  alm_pending* pending = nullptr;
  REQUIRE(alm_kernel_prepare_async(one.kernel, nullptr, &pending, nullptr) == ALM_OK);
  int over = 1;
  CHECK(alm_pending_wait(pending, 0, &over, nullptr) == ALM_COMPILE_TIMEOUT);
  CHECK(over == 0);
  alm_pending_cancel(pending);
  CHECK(alm_pending_wait(pending, 0, &over, nullptr) == ALM_CANCELLED);
  CHECK(over == 1);
  alm_pending_destroy(pending);
  alm_pending_destroy(nullptr);
}

TEST_CASE("a frozen context refuses a compile and names it") {
  AbiFixture one;
  REQUIRE(one.open(kOneKernel).code == ALM_OK);
  REQUIRE(alm_context_freeze(one.context, ALM_FREEZE_FAIL, nullptr) == ALM_OK);
  const Told told = tell([&](alm_error** error) { return alm_kernel_prepare(one.kernel, error); });
  CHECK(told.code == ALM_NOT_CACHED);
  CHECK(told.cause.find("request_key ") != std::string::npos);
  CHECK(told.remedy == "prepare it before alm_context_freeze, or prewarm the cache with it");
}

TEST_CASE("numbers that are no policy, freeze, priority or job count are refused by name") {
  AbiFixture one;
  REQUIRE(one.open(kRaggedSpec).code == ALM_OK);
  CHECK(tell([&](alm_error** error) {
          return alm_context_freeze(one.context, static_cast<alm_freeze>(3), error);
        }).path == "how");
  alm_prepare_options prepare = {};
  prepare.struct_bytes = sizeof prepare;
  prepare.priority = static_cast<alm_priority>(2);
  CHECK(tell([&](alm_error** error) {
          return alm_kernel_prepare_async(one.kernel, &prepare, nullptr, error);
        }).path == "options.priority");
  one.limits.policy = static_cast<alm_policy>(5);
  CHECK(one.create_plan().path == "limits.policy");
  const auto refused = [&](auto change) {
    alm_context_options options = one.options;
    change(options);
    alm_context* context = nullptr;
    return tell([&](alm_error** error) { return alm_context_create(&options, &context, error); })
        .path;
  };
  CHECK(refused([](alm_context_options& o) { o.policy = static_cast<alm_policy>(-1); }) ==
        "options.policy");
  CHECK(refused([](alm_context_options& o) { o.jit = static_cast<alm_jit>(3); }) == "options.jit");
  CHECK(refused([](alm_context_options& o) { o.jobs = 257; }) == "options.jobs");
  CHECK(tell([&](alm_error** error) {
          return alm_pending_wait(nullptr, 0, nullptr, error);
        }).path == "pending");
}

TEST_CASE("a context's policy is that of its plans, and fallback plans ask for more memory") {
  AbiFixture one;
  REQUIRE(one.open(kRaggedSpec).code == ALM_OK);
  const auto staging_bytes = [&](alm_policy policy) {
    alm_plan_limits limits = {};
    limits.struct_bytes = sizeof limits;
    limits.max_batch = 4;
    limits.max_qo_tokens = 4096;
    limits.q_heads = 4;
    limits.kv_heads = 2;
    limits.policy = policy;
    alm_plan_sizes sizes = {};
    sizes.struct_bytes = sizeof sizes;
    alm_plan* plan = nullptr;
    REQUIRE(alm_plan_create(one.kernel, &limits, &plan, &sizes, nullptr) == ALM_OK);
    alm_plan_destroy(plan);
    return sizes.staging_bytes;
  };
  CHECK(staging_bytes(ALM_POLICY_BLOCK) == staging_bytes(ALM_POLICY_DEFAULT));
  CHECK(staging_bytes(ALM_POLICY_FALLBACK) > staging_bytes(ALM_POLICY_DEFAULT));

  alm_context_options options = one.options;
  options.policy = ALM_POLICY_NEVER;
  alm_context* strict = nullptr;
  REQUIRE(alm_context_create(&options, &strict, nullptr) == ALM_OK);
  alm_kernel* kernel = nullptr;
  REQUIRE(alm_kernel_open(strict, kOneKernel.data(), kOneKernel.size(), &kernel, nullptr) ==
          ALM_OK);
  CHECK(alm_kernel_prepare(kernel, nullptr) == ALM_NOT_CACHED);
  alm_kernel_destroy(kernel);
  alm_context_destroy(strict);
}

TEST_CASE("the C++ layer waits, polls and throws") {
  const attnloom::TempDirectory directory;
  const std::string cache = directory / "cache";
  auto options = attnloom::cxx::zeroed<alm_context_options>();
  options.device = ALM_DEVICE_NONE;
  options.cache_dir = cache.c_str();
  attnloom::cxx::Context context(options);
  attnloom::cxx::Kernel kernel(context, kOneKernel);
  attnloom::cxx::Pending pending = kernel.prepare_async();
  while (!pending.wait_for(1)) {
  }
  pending.wait();
  context.freeze(ALM_FREEZE_FAIL);
  kernel.prepare();
  attnloom::cxx::Kernel other(context, kRaggedSpec);
  CHECK_THROWS_AS(other.prepare_async().wait(), attnloom::cxx::Error);
}

}  // namespace
