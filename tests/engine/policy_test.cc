// SPDX-License-Identifier: Apache-2.0
// What happens about a kernel that no layer holds: policies, deadlines, freeze. By events, with a
// compiler that waits where the test wants it to.
#include "engine/policy.h"

#include <catch2/catch.hpp>
#include <thread>

#include "engine/plan_object.h"
#include "engine/stubs.h"

namespace attnloom {
namespace {

using std::chrono::milliseconds;

constexpr AcquireOptions kAsyncly = {.policy = Policy::kAsync};

TEST_CASE("a waiter that runs out of time is COMPILE_TIMEOUT, and the compile goes on") {
  const TempDirectory root;
  Gate gate;
  StubEngine one({.root = root / "cache"});
  one.compiler->before = [&] { gate.wait(); };
  const auto kernels = one.open(one_kernel_spec());
  const Status status =
      kernels->acquire(0, nullptr, {.policy = Policy::kBlock, .timeout = milliseconds(1)}).status();
  CHECK(status.code == Code::kCompileTimeout);
  CHECK(is_retryable(status.code));
  CHECK(status.cause.find(kernels->request_key(0).value()) != std::string::npos);
  gate.open();
  REQUIRE(kernels->acquire(0).ok());
  CHECK(one.compiler->compiles == 1);
  // What nobody waited for is in memory and on disk all the same.
  CHECK(StubEngine({.root = root / "cache", .jit = false}).acquire(one_kernel_spec()).origin ==
        Origin::kDisk);
}

TEST_CASE("async has a kernel compiled once, however often it is asked for, and loads it later") {
  Gate gate;
  StubEngine one({.root = ""});
  one.compiler->before = [&] { gate.wait(); };
  const auto kernels = one.open(one_kernel_spec());
  for (int i = 0; i < 3; ++i)
    CHECK(kernels->acquire(0, nullptr, kAsyncly).status().code == Code::kCompileTimeout);
  CHECK(kernels->awaits(0));
  gate.wait_for_waiters(1);
  gate.open();
  one.wait_until_idle();
  CHECK(one.device->loads == 0);  // never by a thread of ours
  REQUIRE(kernels->acquire(0, nullptr, kAsyncly).ok());
  CHECK_FALSE(kernels->awaits(0));
  CHECK(one.engine->counters() ==
        EngineCounters{.memory_hits = 1, .misses = 1, .compiles = 1, .loads = 1});
}

// B55.
TEST_CASE("a compile that lands while a stream captures is loaded after the capture only") {
  Gate gate;
  StubEngine one({.root = ""});
  one.compiler->before = [&] { gate.wait(); };
  const auto kernels = one.open(one_kernel_spec());
  int stream = 0;
  REQUIRE(kernels->acquire(0, &stream, kAsyncly).status().code == Code::kCompileTimeout);
  one.device->capturing = true;
  gate.open();
  one.wait_until_idle();
  for (const Policy policy : {Policy::kBlock, Policy::kAsync, Policy::kFallback, Policy::kNever})
    CHECK(kernels->acquire(0, &stream, {.policy = policy}).status().code == Code::kCaptureActive);
  CHECK(one.device->loads == 0);
  one.device->capturing = false;
  CHECK(kernels->acquire(0, &stream, kAsyncly).ok());
}

TEST_CASE(
    "an error of an async compile is told with the user's line, and again without a compile") {
  Gate gate;
  StubEngine one({.root = ""});
  one.compiler->before = [&] { gate.wait(); };
  one.compiler->fail = [](const Source&) {
    return make_error(Code::kCompileFailed, "$.variant.logits_transform",
                      "variant.logits_transform:1: expected an expression");
  };
  const auto kernels = one.open(one_kernel_spec(R"("logits_transform": "return logits;")"));
  REQUIRE(kernels->acquire(0, nullptr, kAsyncly).status().code == Code::kCompileTimeout);
  gate.open();
  one.wait_until_idle();
  const Status status = kernels->acquire(0, nullptr, kAsyncly).status();
  CHECK(status.code == Code::kCompileFailed);
  CHECK(status.cause == "line 4 of the JSON, line 1 of the field: expected an expression");
  // It may have landed at once; an answer that was told is forgotten, and the next call asks anew.
  Code again = kernels->acquire(0, nullptr, kAsyncly).status().code;
  if (again == Code::kCompileTimeout) {
    one.wait_until_idle();
    again = kernels->acquire(0, nullptr, kAsyncly).status().code;
  }
  CHECK(again == Code::kCompileFailed);
  CHECK(one.compiler->compiles == 1);
}

TEST_CASE("never looks everywhere and compiles nothing, in an engine that may compile") {
  StubEngine one({.root = ""});
  const auto kernels = one.open(one_kernel_spec());
  CHECK(kernels->acquire(0, nullptr, {.policy = Policy::kNever}).status().code == Code::kNotCached);
  CHECK(one.compiler->compiles == 0);
  REQUIRE(one.open(one_kernel_spec())->prepare().ok());
  CHECK(kernels->acquire(0, nullptr, {.policy = Policy::kNever}).ok());
}

TEST_CASE("an engine's own policy holds where a call names none") {
  StubEngine one(
      {.root = "", .more = [](EngineOptions& options) { options.policy = Policy::kNever; }});
  const auto kernels = one.open(one_kernel_spec());
  CHECK(kernels->acquire(0).status().code == Code::kNotCached);
  CHECK(kernels->acquire(0, nullptr, {.policy = Policy::kBlock}).ok());
}

TEST_CASE("a compile past its deadline is stopped, counted and not kept") {
  const TempDirectory root;
  StubEngine one({.root = root / "cache", .more = [](EngineOptions& options) {
                    options.compile_timeout = milliseconds(1);
                  }});
  one.compiler->interruptible = [](const Source&, const Interrupt& interrupt) {
    while (interrupt.reason() == Code::kOk) std::this_thread::yield();
    return make_error(interrupt.reason(), "", "stopped");
  };
  const auto kernels = one.open(one_kernel_spec());
  const Status status = kernels->acquire(0).status();
  CHECK(status.code == Code::kCompileTimeout);
  CHECK(status.cause == "test attention_mma 16x64 for sm_90a (request_key " +
                            kernels->request_key(0).value() + ") was not compiled within 1 ms");
  CHECK(one.engine->counters() ==
        EngineCounters{.misses = 1, .compiles = 1, .compile_failures = 1, .compile_timeouts = 1});
  CHECK(one.engine->store().counters().published == 0);
  one.compiler->interruptible = {};
  CHECK(kernels->acquire(0).ok());
}

TEST_CASE("compiles at a time stay within `jobs`, and requests pass what is prewarmed") {
  Gate gate;
  StubEngine one({.root = "", .more = [](EngineOptions& options) { options.jobs = 1; }});
  const auto first = one.open(one_kernel_spec());
  const auto prewarmed = one.open(one_kernel_spec(R"("logits_transform": "return logits;")"));
  const auto requested =
      one.open(one_kernel_spec(R"("logits_transform": "return logits * 2.0f;")"));
  std::vector<std::string> keys;
  one.compiler->interruptible = [&](const Source& source, const Interrupt&) {
    keys.push_back(source.text.find("2.0f") != std::string::npos ? "requested" : "other");
    if (keys.size() == 1) gate.wait();
    return ok_status();
  };
  REQUIRE_FALSE(first->acquire(0, nullptr, kAsyncly).ok());
  gate.wait_for_waiters(1);
  REQUIRE_FALSE(
      prewarmed->acquire(0, nullptr, {.policy = Policy::kAsync, .priority = Priority::kPrewarm})
          .ok());
  REQUIRE_FALSE(requested->acquire(0, nullptr, kAsyncly).ok());
  CHECK(one.engine->describe()["compiles"] == Json({{"running", 1}, {"waiting", 2}}));
  gate.open();
  one.wait_until_idle();
  CHECK(keys == std::vector<std::string>{"other", "requested", "other"});
}

TEST_CASE("frozen with a warning, a compile is named, counted and made") {
  StubEngine one({.root = ""});
  REQUIRE(one.open(one_kernel_spec())->prepare().ok());
  one.engine->freeze(Freeze::kWarn);
  const auto kernels = one.open(one_kernel_spec("", "", 128));
  REQUIRE(kernels->prepare().ok());
  REQUIRE(one.open(one_kernel_spec())->prepare().ok());  // in memory: not a word
  CHECK(one.engine->counters().frozen == 1);
  const std::string line =
      "compiled although the context is frozen: test attention_mma 16x128 "
      "for sm_90a (request_key " +
      kernels->request_key(0).value() + ")";
  CHECK(std::count(one.log.begin(), one.log.end(), line) == 1);
}

TEST_CASE("frozen for good, a compile is NOT_CACHED under every policy; what is cached is found") {
  const TempDirectory root;
  {
    StubEngine earlier({.root = root / "cache"});
    REQUIRE(earlier.open(one_kernel_spec())->prepare().ok());
  }
  StubEngine one({.root = root / "cache"});
  one.engine->freeze(Freeze::kFail);
  REQUIRE(one.open(one_kernel_spec())->prepare().ok());
  const auto kernels = one.open(one_kernel_spec("", "", 128));
  for (const Policy policy : {Policy::kBlock, Policy::kAsync, Policy::kFallback}) {
    const Status status = kernels->acquire(0, nullptr, {.policy = policy}).status();
    CHECK(status.code == Code::kNotCached);
    CHECK(status.cause == "test attention_mma 16x128 for sm_90a (request_key " +
                              kernels->request_key(0).value() +
                              ") would have to be compiled, and the context is frozen");
  }
  CHECK(one.engine->counters().frozen == 3);
  CHECK(one.compiler->compiles == 0);
  one.engine->freeze(Freeze::kNone);
  CHECK(kernels->prepare().ok());
}

TEST_CASE("jit with a warning compiles and names what no layer held") {
  StubEngine one({.root = "", .more = [](EngineOptions& options) { options.jit_warns = true; }});
  const auto kernels = one.open(one_kernel_spec());
  REQUIRE(kernels->prepare().ok());
  const std::string line =
      "no cache layer holds test attention_mma 16x64 for sm_90a (request_key " +
      kernels->request_key(0).value() + "): it is compiled";
  CHECK(std::count(one.log.begin(), one.log.end(), line) == 1);
}

// ---- plans ----

// A plan over the whole set, and batches that want its first and its last single-class kernel.
struct AutoPlan {
  static constexpr PlanLimits kLimits = {
      .max_batch = 4, .max_qo_tokens = 4096, .q_heads = 4, .kv_heads = 2};
  AutoPlan(StubEngine& one, Policy policy, int timeout_ms = 0) : kernels(one.open(auto_spec())) {
    auto made =
        PlanObject::create(kernels, kLimits, {.policy = {policy, milliseconds(timeout_ms)}});
    REQUIRE(made.ok());
    plan = std::move(made).value();
    staging.resize(plan->staging_bytes());
    REQUIRE(plan->bind(0x100000, plan->workspace_bytes(), staging.data(), staging.size()).ok());
  }
  Status update(int queries) {
    const std::vector<std::int32_t> qo = {0, queries};
    const std::vector<std::int32_t> kv = {0, 64};
    const std::vector<std::int32_t> last = {16};
    Workload workload;
    workload.qo_indptr = qo;
    workload.kv_indptr = kv;
    workload.last_page_len = last;
    Status status = plan->update(workload, nullptr);
    if (status.ok()) status = plan->check(workload, nullptr);
    UNSCOPED_INFO(status.to_string());
    return status;
  }
  int used() const { return plan->plan()->kernel; }

  std::shared_ptr<KernelSet> kernels;
  std::unique_ptr<PlanObject> plan;
  std::vector<std::byte> staging;
};

constexpr int kShort = 1;    // query tokens that want the smallest tile
constexpr int kLong = 1000;  // and a large one

// Which kernels the two batches get where everything is compiled.
std::pair<int, int> wanted_kernels() {
  StubEngine one({.root = ""});
  AutoPlan all(one, Policy::kBlock);
  REQUIRE(all.update(kShort).ok());
  const int first = all.used();
  REQUIRE(all.update(kLong).ok());
  REQUIRE(first != all.used());
  return {first, all.used()};
}

TEST_CASE("fallback plans with a kernel that is there until the one that is wanted has landed") {
  const auto [short_kernel, long_kernel] = wanted_kernels();
  Gate gate;
  StubEngine one({.root = ""});
  AutoPlan plan(one, Policy::kFallback);
  REQUIRE(plan.kernels->acquire(short_kernel).ok());
  one.compiler->before = [&] { gate.wait(); };
  for (int step = 0; step < 3; ++step) {
    REQUIRE(plan.update(kLong).ok());
    CHECK(plan.used() == short_kernel);
  }
  CHECK(one.engine->counters().fallbacks == 3);
  gate.open();
  one.wait_until_idle();
  REQUIRE(plan.update(kLong).ok());
  CHECK(plan.used() == long_kernel);
  CHECK(one.engine->counters().fallbacks == 3);
  CHECK(one.compiler->compiles == 2);
  CHECK(plan.plan->describe()["kernel"]["index"] == long_kernel);
}

TEST_CASE("fallback takes a kernel of a read-only layer, and without any waits for its time") {
  const auto [short_kernel, long_kernel] = wanted_kernels();
  const TempDirectory root;
  {
    StubEngine earlier({.root = root / "shipped"});
    REQUIRE(earlier.open(auto_spec())->acquire(short_kernel).ok());
  }
  Gate gate;
  StubEngine one({.root = "", .read_only = {root / "shipped"}});
  StubEngine bare({.root = ""});
  one.compiler->before = [&] { gate.wait(); };
  bare.compiler->before = [&] { gate.wait(); };
  AutoPlan plan(one, Policy::kFallback);
  REQUIRE(plan.update(kLong).ok());
  CHECK(plan.used() == short_kernel);
  CHECK(one.engine->counters().read_only_hits == 1);
  AutoPlan alone(bare, Policy::kFallback, 1);
  CHECK(alone.update(kLong).code == Code::kCompileTimeout);
  gate.open();
  bare.wait_until_idle();
  REQUIRE(alone.update(kLong).ok());
  CHECK(alone.used() == long_kernel);
  CHECK(bare.compiler->compiles == 1);
}

TEST_CASE(
    "fallback goes on without a kernel that does not compile, and does not try it each step") {
  const auto [short_kernel, long_kernel] = wanted_kernels();
  StubEngine one({.root = ""});
  AutoPlan plan(one, Policy::kFallback);
  REQUIRE(plan.kernels->acquire(short_kernel).ok());
  one.compiler->fail = [](const Source&) {
    return make_error(Code::kOutOfMemory, "", "the compiler had no memory");
  };
  for (int step = 0; step < 5; ++step) {
    REQUIRE(plan.update(kLong).ok());
    CHECK(plan.used() == short_kernel);
    one.wait_until_idle();
  }
  CHECK(one.compiler->compiles == 2);
  CHECK(plan.kernels->acquire(long_kernel).status().code == Code::kOutOfMemory);
  one.compiler->fail = {};
  REQUIRE(plan.kernels->prepare().ok());
  REQUIRE(plan.update(kLong).ok());
  CHECK(plan.used() == long_kernel);
}

TEST_CASE("without jit fallback serves a set of which one kernel is cached") {
  const auto [short_kernel, long_kernel] = wanted_kernels();
  const TempDirectory root;
  {
    StubEngine earlier({.root = root / "cache"});
    REQUIRE(earlier.open(auto_spec())->acquire(short_kernel).ok());
  }
  StubEngine one({.root = root / "cache", .jit = false});
  AutoPlan plan(one, Policy::kFallback);
  REQUIRE(plan.update(kLong).ok());
  CHECK(plan.used() == short_kernel);
  AutoPlan strict(one, Policy::kNever);
  CHECK(strict.update(kLong).code == Code::kNotCached);
  CHECK(one.compiler->compiles == 0);
}

TEST_CASE("an async plan keeps the last good plan until the kernel has landed") {
  const auto [short_kernel, long_kernel] = wanted_kernels();
  Gate gate;
  StubEngine one({.root = ""});
  AutoPlan plan(one, Policy::kAsync);
  REQUIRE(plan.kernels->acquire(short_kernel).ok());
  REQUIRE(plan.update(kShort).ok());
  one.compiler->before = [&] { gate.wait(); };
  CHECK(plan.update(kLong).code == Code::kCompileTimeout);
  CHECK(plan.used() == short_kernel);
  CHECK(plan.plan->generation() == 1);
  gate.open();
  one.wait_until_idle();
  REQUIRE(plan.update(kLong).ok());
  CHECK(plan.used() == long_kernel);
}

}  // namespace
}  // namespace attnloom
