// SPDX-License-Identifier: Apache-2.0
// Kernels in memory: how many stay, and what happens to one that the driver refuses.
#include <barrier>
#include <catch2/catch.hpp>
#include <filesystem>
#include <thread>

#include "engine/engine_state.h"
#include "engine/stubs.h"

namespace attnloom {
namespace {

// Specs with one kernel each.
std::string spec(int number) {
  return one_kernel_spec(R"("logits_transform": "return logits + )" + std::to_string(number) +
                         R"(.0f;")");
}

// A kernel of a set that ends here, and of a compile that is over.
AcquiredKernel use(StubEngine& one, int number) {
  AcquiredKernel kernel = one.acquire(spec(number));
  one.wait_until_idle();
  return kernel;
}

std::function<void(EngineOptions&)> most_kernels(int count) {
  return [count](EngineOptions& options) { options.most_loaded_kernels = count; };
}

TEST_CASE("of the kernels that nobody holds the least recently used are unloaded") {
  const TempDirectory root;
  StubEngine one({.root = root / "cache", .more = most_kernels(2)});
  use(one, 1);
  use(one, 2);
  CHECK(one.device->unloads == 0);
  use(one, 1);  // used again: the second is now the older one
  use(one, 3);
  CHECK(one.device->unloads == 1);
  CHECK(one.engine->counters().unloads == 1);
  CHECK(use(one, 1).origin == Origin::kMemory);
  CHECK(one.device->loads == 3);
  CHECK(use(one, 2).origin == Origin::kDisk);
  CHECK(one.device->loads == 4);
  CHECK(one.compiler->compiles == 3);
  CHECK(one.engine->describe()["memory"]["kernels"] == 2);
}

TEST_CASE("a kernel that a set holds stays loaded however many come after it") {
  StubEngine one({.root = "", .more = most_kernels(1)});
  {
    const auto held = one.open(spec(0));
    const AcquiredKernel* kernel = held->acquire(0).value();
    for (int i = 1; i <= 4; ++i) use(one, i);
    CHECK(one.device->unloads == 3);  // neither the first nor the last, which was in use
    CHECK(held->acquired(0) == kernel);
    CHECK(one.open(spec(0))->acquire(0).value()->loaded == kernel->loaded);
    CHECK(one.device->loads == 5);
  }
  use(one, 5);
  CHECK(one.device->unloads == 5);
}

TEST_CASE("bytes are bounded as well as kernels") {
  StubEngine one({.root = "", .more = [](EngineOptions& options) {
                    options.most_loaded_bytes = 300;  // a stub's artifact has 142
                  }});
  for (int i = 0; i < 3; ++i) use(one, i);
  CHECK(one.device->unloads == 1);
  CHECK(one.engine->describe()["memory"]["kernels"] == 2);
}

// ---- an image that the driver refuses ----

constexpr const char* kOld = "made by a compiler that was not well";

// A cache with an entry that the driver of `refusing()` does not take.
void fill_with_old(const std::string& root) {
  StubEngine earlier({.root = root});
  earlier.compiler->log = kOld;
  REQUIRE(earlier.open(one_kernel_spec())->prepare().ok());
}

Status refusal() {
  return make_error(Code::kLoadFailed, kRefusedImage, "cuLibraryLoadData: CUDA_ERROR (200)");
}

Status refuse_old(const Artifact& artifact) {
  return artifact.log == kOld ? refusal() : ok_status();
}

TEST_CASE("a cached image that the driver refuses is quarantined and compiled anew, once") {
  const TempDirectory root;
  fill_with_old(root / "cache");
  StubEngine one({.root = root / "cache"});
  one.device->refuse = refuse_old;
  CHECK(one.acquire(one_kernel_spec()).origin == Origin::kCompiled);
  CHECK(one.engine->counters() ==
        EngineCounters{.disk_hits = 1, .misses = 1, .compiles = 1, .loads = 1, .rejected = 1});
  CHECK(one.engine->store().counters().quarantined == 1);
  CHECK_FALSE(std::filesystem::is_empty(root / "cache/v1/quarantine"));
  // What took its place serves the next process.
  StubEngine next({.root = root / "cache", .jit = false});
  next.device->refuse = refuse_old;
  CHECK(next.acquire(one_kernel_spec()).origin == Origin::kDisk);
}

TEST_CASE("an image of a read-only layer that the driver refuses is passed over from then on") {
  const TempDirectory root;
  fill_with_old(root / "shipped");
  StubEngine one({.root = "", .read_only = {root / "shipped"}});
  one.device->refuse = refuse_old;
  CHECK(one.acquire(one_kernel_spec()).origin == Origin::kCompiled);
  CHECK(one.engine->counters().rejected == 1);
}

TEST_CASE("a second refusal is the error, and nothing is compiled for it again") {
  const TempDirectory root;
  fill_with_old(root / "cache");
  StubEngine one({.root = root / "cache"});
  one.device->refuse = [](const Artifact&) { return refusal(); };
  for (int i = 0; i < 2; ++i) {
    const Status status = one.open(one_kernel_spec())->acquire(0).status();
    CHECK(status.code == Code::kLoadFailed);
    CHECK(status.cause == refusal().cause);
  }
  CHECK(one.compiler->compiles == 1);
  CHECK(one.engine->counters().rejected == 1);
}

TEST_CASE("where nothing may be compiled the refusal is the error") {
  const TempDirectory root;
  fill_with_old(root / "cache");
  StubEngine one({.root = root / "cache", .jit = false});
  one.device->refuse = refuse_old;
  CHECK(one.open(one_kernel_spec())->acquire(0).status().code == Code::kLoadFailed);
}

TEST_CASE("trouble of the context is no fault of the entry") {
  const TempDirectory root;
  fill_with_old(root / "cache");
  StubEngine one({.root = root / "cache"});
  one.device->refuse = [](const Artifact&) {
    return make_error(Code::kLoadFailed, "", "cuLibraryLoadData: CUDA_ERROR (719)");
  };
  CHECK(one.open(one_kernel_spec())->acquire(0).status().code == Code::kLoadFailed);
  CHECK(one.engine->store().counters().quarantined == 0);
  CHECK(one.compiler->compiles == 0);
}

TEST_CASE("8 threads that meet a refused image heal it once, and none takes out its successor") {
  const TempDirectory root;
  fill_with_old(root / "cache");
  StubEngine one({.root = root / "cache"});
  // The first refusal waits until all have found the old kernel.
  one.device->refuse = [&](const Artifact& artifact) {
    const auto found = [&] {
      const EngineCounters now = one.engine->counters();
      return now.disk_hits + now.memory_hits;
    };
    while (found() < 8) std::this_thread::yield();
    return refuse_old(artifact);
  };
  std::barrier begin(8);
  std::atomic<int> good{0};
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 8; ++i) {
      threads.emplace_back([&] {
        const auto kernels = one.engine->open(one_kernel_spec());
        begin.arrive_and_wait();
        if (kernels.value()->acquire(0).ok()) ++good;
      });
    }
  }
  CHECK(good == 8);
  CHECK(one.compiler->compiles == 1);
  CHECK(one.engine->counters().rejected == 1);
  CHECK(one.engine->counters().loads == 1);
  CHECK(one.engine->store().counters().quarantined == 1);
}

}  // namespace
}  // namespace attnloom
