// SPDX-License-Identifier: Apache-2.0
#include "engine/pending.h"

#include <barrier>
#include <catch2/catch.hpp>
#include <thread>

#include "engine/stubs.h"

namespace attnloom {
namespace {

// Counts what a callback is told.
struct Told {
  std::atomic<int> calls{0};
  Code code = Code::kInternal;
  Gate over;
  Pending::Callback callback() {
    return [this](const Status& status) {
      code = status.code;
      ++calls;
      over.open();
    };
  }
};

TEST_CASE("preparing a set behind the caller's back compiles all, loads nothing, calls back once") {
  StubEngine one({.root = ""});
  const auto kernels = one.open(auto_spec());
  Told told;
  const auto pending = Pending::start(kernels, Priority::kRequest, told.callback());
  const std::optional<Status> status = pending->wait(std::nullopt);
  REQUIRE(status);
  CHECK(status->ok());
  told.over.wait();
  CHECK(one.compiler->compiles == kernels->size());
  CHECK(one.device->loads == 0);
  REQUIRE(kernels->prepare().ok());
  CHECK(one.compiler->compiles == kernels->size());
  CHECK(one.device->loads == kernels->size());
  pending->cancel();  // too late: nothing
  pending->close();
  CHECK(told.calls == 1);
  CHECK(told.code == Code::kOk);
}

TEST_CASE("a kernel that spills is followed down before the callback comes") {
  StubEngine one({.root = "", .more = [](EngineOptions& options) { options.jobs = 1; }});
  const auto kernels = one.open(auto_spec());
  const int index = kernel_that_can_step_down(*kernels);
  one.compiler->spill_bytes = [&](const Source&) {
    return one.compiler->compiles == index + 1 ? 24 : 0;
  };
  const auto pending = Pending::start(kernels, Priority::kRequest, {});
  REQUIRE(pending->wait(std::nullopt)->ok());
  CHECK(one.compiler->compiles == kernels->size() + 1);
  REQUIRE(kernels->prepare().ok());
  CHECK(one.compiler->compiles == kernels->size() + 1);
}

TEST_CASE("all who wait for a compile that fails get its error, once each") {
  Gate gate;
  StubEngine one({.root = ""});
  one.compiler->before = [&] { gate.wait(); };
  one.compiler->fail = [](const Source&) {
    return make_error(Code::kCompileFailed, "$.variant.logits_transform",
                      "variant.logits_transform:1: expected an expression");
  };
  const std::string spec = one_kernel_spec(R"("logits_transform": "return logits;")");
  Told told[3];
  std::vector<std::shared_ptr<Pending>> pendings;
  for (Told& each : told)
    pendings.push_back(Pending::start(one.open(spec), Priority::kRequest, each.callback()));
  Status blocked;
  std::jthread blocking([&] { blocked = one.open(spec)->acquire(0).status(); });
  gate.wait_for_waiters(1);
  gate.open();
  blocking.join();
  for (const auto& pending : pendings) {
    const Status status = *pending->wait(std::nullopt);
    CHECK(status.cause == "line 4 of the JSON, line 1 of the field: expected an expression");
  }
  for (Told& each : told) {
    each.over.wait();
    CHECK(each.code == Code::kCompileFailed);
    CHECK(each.calls == 1);
  }
  CHECK(blocked.code == Code::kCompileFailed);
}

TEST_CASE("cancel ends one waiter; the compile is stopped when it was the last, and begins anew") {
  Gate gate;
  std::atomic<int> stopped{0};
  StubEngine one({.root = ""});
  one.compiler->interruptible = [&](const Source&, const Interrupt& interrupt) {
    gate.wait();
    while (one.compiler->compiles == 0 && interrupt.reason() == Code::kOk)
      std::this_thread::yield();
    if (interrupt.reason() == Code::kOk) return ok_status();
    ++stopped;
    return make_error(interrupt.reason(), "", "stopped");
  };
  Told first;
  Told second;
  const auto a = Pending::start(one.open(one_kernel_spec()), Priority::kRequest, first.callback());
  const auto b = Pending::start(one.open(one_kernel_spec()), Priority::kRequest, second.callback());
  gate.wait_for_waiters(1);
  gate.open();
  a->cancel();
  CHECK(a->wait(std::nullopt)->code == Code::kCancelled);
  CHECK(first.calls == 1);
  CHECK_FALSE(b->wait(std::chrono::steady_clock::now()));
  CHECK(stopped == 0);
  b->cancel();
  CHECK(second.code == Code::kCancelled);
  one.wait_until_idle();
  CHECK(stopped == 1);
  one.compiler->interruptible = {};
  CHECK(one.open(one_kernel_spec())->acquire(0).ok());
  CHECK(one.engine->counters().cancelled == 1);
  CHECK(one.engine->counters().compiles == 2);
}

TEST_CASE("what has not begun is withdrawn, and its callback comes from cancel") {
  Gate gate;
  StubEngine one({.root = "", .more = [](EngineOptions& options) { options.jobs = 1; }});
  one.compiler->before = [&] { gate.wait(); };
  const auto running = Pending::start(one.open(one_kernel_spec()), Priority::kRequest, {});
  gate.wait_for_waiters(1);
  Told told;
  const auto waiting =
      Pending::start(one.open(one_kernel_spec("", "", 128)), Priority::kRequest, told.callback());
  waiting->cancel();
  CHECK(told.calls == 1);
  gate.open();
  CHECK(running->wait(std::nullopt)->ok());
  CHECK(one.compiler->compiles == 1);
}

TEST_CASE("one that gives up does not stop a compile that a plan or a waiter still wants") {
  Gate gate;
  StubEngine one({.root = ""});
  one.compiler->before = [&] { gate.wait(); };
  const auto kernels = one.open(one_kernel_spec());
  const auto pending = Pending::start(kernels, Priority::kRequest, {});
  REQUIRE(kernels->acquire(0, nullptr, {.policy = Policy::kAsync}).status().code ==
          Code::kCompileTimeout);
  pending->close();
  gate.open();
  CHECK(kernels->acquire(0).ok());
  CHECK(one.engine->counters().cancelled == 0);
  CHECK(one.compiler->compiles == 1);
}

TEST_CASE("close returns after the callback, and may be called by it") {
  Gate known;
  StubEngine one({.root = ""});
  std::shared_ptr<Pending> pending;
  std::atomic<bool> over{false};
  one.compiler->before = [&] { known.wait(); };  // a callback of what is over comes from start()
  pending = Pending::start(one.open(one_kernel_spec()), Priority::kRequest, [&](const Status&) {
    pending->close();
    over = true;
  });
  known.open();
  while (!over) std::this_thread::yield();
  pending->close();
  CHECK(over);
}

TEST_CASE("an engine that ends with compiles in flight ends every waiter, and leaks nothing") {
  Told told[4];
  std::vector<std::shared_ptr<Pending>> pendings;
  auto compiler = std::make_shared<CompilerScript>();
  {
    Gate gate;
    StubEngine one({.root = "", .more = [](EngineOptions& options) { options.jobs = 2; }});
    compiler = one.compiler;
    one.compiler->interruptible = [&](const Source&, const Interrupt& interrupt) {
      gate.wait();
      while (interrupt.reason() == Code::kOk) std::this_thread::yield();
      return make_error(interrupt.reason(), "", "stopped");
    };
    for (int i = 0; i < 4; ++i)
      pendings.push_back(
          Pending::start(one.open(one_kernel_spec(R"("logits_transform": "return logits + )" +
                                                  std::to_string(i) + R"(.0f;")")),
                         Priority::kRequest, told[i].callback()));
    gate.wait_for_waiters(2);
    gate.open();
    pendings.resize(3);  // one is let go by its owner and lives on
  }
  for (Told& each : told) {
    CHECK(each.calls == 1);
    CHECK(each.code == Code::kCancelled);
  }
  CHECK(compiler->compiles == 0);
  CHECK(pendings[0]->wait(std::nullopt)->code == Code::kCancelled);
}

TEST_CASE("a kernel that memory gave up meanwhile is kept for the pending that asked for it") {
  StubEngine one(
      {.root = "", .more = [](EngineOptions& options) { options.most_loaded_kernels = 1; }});
  const auto kernels = one.open(auto_spec());
  const auto pending = Pending::start(kernels, Priority::kRequest, {});
  REQUIRE(pending->wait(std::nullopt)->ok());
  REQUIRE(kernels->prepare().ok());
  CHECK(one.compiler->compiles == kernels->size());
}

// B107.
TEST_CASE("16 threads asking asynchronously for two new kernels cause two compiles at a time") {
  const TempDirectory root;
  StubEngine one({.root = root / "cache",
                  .lock_directory = root / "locks",
                  .more = [](EngineOptions& options) { options.jobs = 2; }});
  std::barrier both(2);  // each compile waits for the other
  one.compiler->before = [&] { both.arrive_and_wait(); };
  std::atomic<int> good{0};
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 16; ++i) {
      threads.emplace_back([&, i] {
        const auto kernels = one.engine->open(one_kernel_spec("", "", i % 2 == 0 ? 64 : 128));
        const auto pending =
            Pending::start(kernels.value(), Priority::kRequest, [&](const Status& status) {
              if (status.ok()) ++good;
            });
        if (i % 4 == 0) pending->wait(std::nullopt);
      });
    }
  }
  while (good < 16) std::this_thread::yield();
  CHECK(one.compiler->compiles == 2);
}

}  // namespace
}  // namespace attnloom
