// SPDX-License-Identifier: Apache-2.0
// One compile a key among the threads of a process; the real compiler, because it must stand it
// too.
#include "cache/flight.h"

#include <catch2/catch.hpp>
#include <latch>
#include <thread>

#include "../compile/nvrtc_for_tests.h"

namespace attnloom {
namespace {

using Landed = Result<std::shared_ptr<Artifact>>;

// Counts, and lets the leaders of two keys meet inside compile().
class CountingToolchain : public Toolchain {
 public:
  Result<Fingerprint> fingerprint() override { return toolchain_->fingerprint(); }
  Result<Artifact> compile(const Source& source) override {
    ++compiles;
    // A lock over all keys would keep the second leader out.
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (compiles < 2 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    both_inside = both_inside && compiles >= 2;
    return toolchain_->compile(source);
  }

  std::atomic<int> compiles{0};
  std::atomic<bool> both_inside{true};

 private:
  const std::unique_ptr<Toolchain> toolchain_ = test_toolchain();
};

Landed compile_shared(Toolchain& toolchain, const Source& source) {
  ATTNLOOM_TRY(Artifact artifact, toolchain.compile(source));
  return std::make_shared<Artifact>(std::move(artifact));
}

}  // namespace

TEST_CASE("16 threads with two keys: two compiles, at the same time, one value each") {
  constexpr int kThreads = 16;
  CountingToolchain toolchain;
  Flight<Artifact> flight;
  const Source sources[] = {trivial_source("sm_90a"), trivial_source("sm_80")};
  std::shared_ptr<Artifact>
      memory[2];  // as engine has one, for a thread that asks after the landing
  std::atomic<int> asked{0};
  std::vector<std::shared_ptr<Artifact>> got(kThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      const Source& source = sources[i % 2];
      ++asked;
      const auto landed = flight.run(source.target, [&]() -> Landed {
        if (memory[i % 2] != nullptr) return memory[i % 2];
        while (asked < kThreads) std::this_thread::yield();
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        auto compiled = compile_shared(toolchain, source);
        if (compiled.ok()) memory[i % 2] = *compiled;
        return compiled;
      });
      if (landed.ok()) got[static_cast<std::size_t>(i)] = *landed;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(toolchain.both_inside);
  CHECK(toolchain.compiles == 2);
  for (int i = 0; i < kThreads; ++i) {
    REQUIRE(got[static_cast<std::size_t>(i)] != nullptr);
    CHECK(got[static_cast<std::size_t>(i)] == got[static_cast<std::size_t>(i % 2)]);
    CHECK(got[static_cast<std::size_t>(i)]->target == sources[i % 2].target);
  }
}

TEST_CASE("a failure reaches all who wait and is not remembered") {
  constexpr int kThreads = 8;
  Flight<int> flight;
  std::atomic<int> calls{0};
  std::atomic<int> errors{0};
  std::latch start(kThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      start.arrive_and_wait();
      const auto landed = flight.run("k", [&]() -> Result<std::shared_ptr<int>> {
        ++calls;
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        return make_error(Code::kCompileFailed, "$.variant.prelude", "foo is undefined");
      });
      if (!landed.ok() && landed.status().cause == "foo is undefined") ++errors;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(errors == kThreads);
  CHECK(calls < kThreads);
  const auto later =
      flight.run("k", []() -> Result<std::shared_ptr<int>> { return std::make_shared<int>(7); });
  REQUIRE(later.ok());
  CHECK(**later == 7);
}

TEST_CASE("work that throws lands its waiters with an error") {
  Flight<int> flight;
  const auto landed =
      flight.run("k", []() -> Result<std::shared_ptr<int>> { throw std::bad_alloc(); });
  REQUIRE_FALSE(landed.ok());
  CHECK(landed.status().code == Code::kOutOfMemory);
  CHECK(flight.run("k", []() -> Result<std::shared_ptr<int>> { return std::make_shared<int>(1); })
            .ok());
}

}  // namespace attnloom
