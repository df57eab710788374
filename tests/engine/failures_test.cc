// SPDX-License-Identifier: Apache-2.0
// Compiles that fail: which of them are compiled again, by whom, and what is told.
#include <catch2/catch.hpp>
#include <filesystem>
#include <set>
#include <thread>

#include "cache/own_files.h"
#include "stubs.h"

namespace attnloom {
namespace {

std::function<Status(const Source&)> always(Code code) {
  return [code](const Source&) {
    return make_error(code, "$.variant.logits_transform",
                      "variant.logits_transform:1: identifier \"x\" is undefined", "correct it");
  };
}

const std::string kBroken = R"("logits_transform": "return x;")";

Status failure_of(StubEngine& one, const std::string& spec) {
  return one.open(spec)->acquire(0).status();
}

std::size_t kept_below(const std::string& root) {
  return list_failures(*make_real_file_system(), root + "/v1").size();
}

}  // namespace

TEST_CASE("a spec that cannot compile is compiled once, by whichever process came first") {
  const TempDirectory root;
  const Code code = GENERATE(Code::kCompileFailed, Code::kResourceLimit);
  StubEngine first({.root = root / "cache", .lock_directory = root / "locks"});
  first.compiler->fail = always(code);
  const Status failure = failure_of(first, one_kernel_spec(kBroken));
  CHECK(failure.code == code);
  CHECK(kept_below(root / "cache") == 1);

  StubEngine second({.root = root / "cache", .lock_directory = root / "locks"});
  for (int i = 0; i < 2; ++i) {
    const Status again = failure_of(second, one_kernel_spec(kBroken));
    CHECK(again.code == failure.code);
    CHECK(again.path == failure.path);
    CHECK(again.cause == failure.cause);
    CHECK(again.remedy == failure.remedy);
  }
  CHECK(second.engine->counters() == EngineCounters{.misses = 2, .negative_hits = 2});
  CHECK(second.compiler->compiles == 0);
  // Another text is another key.
  CHECK(second.open(one_kernel_spec(R"("logits_transform": "return 1.0f;")"))->prepare().ok());
  CHECK(second.compiler->compiles == 1);
}

TEST_CASE("a kept failure names the line of the JSON that is asked about") {
  const TempDirectory root;
  StubEngine first({.root = root / "cache"});
  first.compiler->fail = always(Code::kCompileFailed);
  CHECK(failure_of(first, one_kernel_spec(kBroken)).cause.rfind("line 4 of the JSON", 0) == 0);
  StubEngine second({.root = root / "cache"});
  CHECK(
      failure_of(second, "\n\n" + one_kernel_spec(kBroken)).cause.rfind("line 6 of the JSON", 0) ==
      0);
  CHECK(second.compiler->compiles == 0);
}

TEST_CASE("what may go right the next time is compiled again") {
  const TempDirectory root;
  const Code code = GENERATE(Code::kOutOfMemory, Code::kCancelled, Code::kCompilerMissing,
                             Code::kCompileTimeout, Code::kInternal, Code::kSpecUnsupported);
  StubEngine one({.root = root / "cache"});
  one.compiler->fail = always(code);
  CHECK(failure_of(one, one_kernel_spec()).code == code);
  CHECK(failure_of(one, one_kernel_spec()).code == code);
  CHECK(one.compiler->compiles == 2);
  CHECK(kept_below(root / "cache") == 0);
  one.compiler->fail = nullptr;
  CHECK(one.open(one_kernel_spec())->prepare().ok());
  CHECK(one.engine->counters().negative_hits == 0);
}

TEST_CASE("after an hour, or without a directory, only the process that saw a failure keeps it") {
  const TempDirectory root;
  StubEngine first({.root = root / "cache"});
  first.compiler->fail = always(Code::kCompileFailed);
  CHECK_FALSE(failure_of(first, one_kernel_spec(kBroken)).ok());
  const std::string path = list_failures(*make_real_file_system(), root / "cache/v1").at(0).path;
  std::filesystem::last_write_time(
      path, std::filesystem::file_time_type::clock::now() - std::chrono::minutes(61));
  CHECK_FALSE(failure_of(first, one_kernel_spec(kBroken)).ok());
  CHECK(first.compiler->compiles == 1);
  StubEngine second({.root = root / "cache"});
  CHECK(second.open(one_kernel_spec(kBroken))->prepare().ok());
  CHECK(second.compiler->compiles == 1);

  StubEngine diskless({.root = ""});
  diskless.compiler->fail = always(Code::kCompileFailed);
  for (int i = 0; i < 3; ++i) CHECK_FALSE(failure_of(diskless, one_kernel_spec(kBroken)).ok());
  CHECK(diskless.compiler->compiles == 1);
}

TEST_CASE("threads that ask for a bad spec together get one compile and one error") {
  const TempDirectory root;
  StubEngine one({.root = root / "cache", .lock_directory = root / "locks"});
  one.compiler->fail = always(Code::kCompileFailed);
  std::vector<std::shared_ptr<KernelSet>> sets;
  for (int i = 0; i < 8; ++i) sets.push_back(one.open(one_kernel_spec(kBroken)));
  std::atomic<int> failed{0};
  {
    std::vector<std::jthread> threads;
    for (const std::shared_ptr<KernelSet>& set : sets) {
      threads.emplace_back([&failed, &set] {
        if (set->acquire(0).status().code == Code::kCompileFailed) ++failed;
      });
    }
  }
  CHECK(failed == 8);
  CHECK(one.compiler->compiles == 1);
}

}  // namespace attnloom
