// SPDX-License-Identifier: Apache-2.0
#include "engine/prewarm.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <set>

#include "engine/stubs.h"

namespace attnloom {
namespace {

PrewarmItem item(const std::string& label, const std::string& spec, std::vector<Target> targets) {
  return {label, parse_spec(spec).value(), std::move(targets)};
}

// B129: what was prewarmed is what is asked for, by another engine with another root, without a
// compile.
TEST_CASE(
    "a store filled without a device serves every kernel of its specs with compiling forbidden") {
  const TempDirectory root;
  StubEngine one({.root = root / "cache", .has_device = false});
  int reported = 0;
  PrewarmOptions options;
  options.jobs = 3;
  options.done = [&](const PrewarmRow&) { ++reported; };
  const auto rows = prewarm(*one.engine,
                            {item("auto", auto_spec(), {{90, 'a'}, {80, '\0'}}),
                             item("one", one_kernel_spec("", "", 128), {{90, 'a'}})},
                            options)
                        .rows;
  CHECK(reported == static_cast<int>(rows.size()));
  for (const PrewarmRow& row : rows) {
    INFO(row.label << " " << row.status.to_string());
    CHECK(row.status.ok());
    CHECK(row.origin == "compiled");
  }
  CHECK(rows.front().target == "sm_90a");
  CHECK(rows.back().label == "one");
  CHECK(one.compiler->compiles == static_cast<int>(rows.size()));

  StubEngine two({.root = root / "mine", .read_only = {root / "cache"}, .jit = false});
  REQUIRE(two.open(auto_spec())->prepare().ok());
  REQUIRE(two.open(one_kernel_spec("", "", 128))->prepare().ok());
  CHECK(two.engine->counters().misses == 0);
  CHECK(two.compiler->compiles == 0);
}

TEST_CASE("check says what is missing and compiles nothing") {
  const TempDirectory root;
  StubEngine one({.root = root / "cache", .has_device = false});
  const std::vector<PrewarmItem> items = {item("one", one_kernel_spec(), {{90, 'a'}})};
  PrewarmOptions check;
  check.check_only = true;
  auto rows = prewarm(*one.engine, items, check).rows;
  REQUIRE(rows.size() == 1);
  CHECK(rows[0].status.code == Code::kNotCached);
  CHECK(rows[0].request_key.size() == 64);
  CHECK(one.compiler->compiles == 0);
  REQUIRE(prewarm(*one.engine, items, {}).rows[0].status.ok());
  rows = prewarm(*one.engine, items, check).rows;
  CHECK(rows[0].status.ok());
  CHECK(one.compiler->compiles == 1);
}

TEST_CASE("a spec or target that is refused is one row, and the others are made") {
  StubEngine one({.root = "", .has_device = false});
  const auto rows = prewarm(*one.engine,
                            {item("old", one_kernel_spec(), {{75, '\0'}}),
                             item("one", one_kernel_spec(), {{90, 'a'}})},
                            {})
                        .rows;
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].status.code == Code::kSpecUnsupported);
  CHECK(rows[1].status.ok());
}

// Every shard looks at the whole manifest, and each kernel is done by exactly one of them.
TEST_CASE("shards share out the kernels by their keys") {
  const TempDirectory root;
  const std::vector<PrewarmItem> items = {item("auto", auto_spec(), {{90, 'a'}, {80, '\0'}})};
  StubEngine whole({.root = root / "whole", .has_device = false});
  const std::size_t kernels = prewarm(*whole.engine, items, {}).rows.size();
  StubEngine stub({.root = root / "cache", .has_device = false});
  std::set<std::string> keys;
  for (std::uint32_t i = 0; i < 3; ++i) {
    PrewarmOptions options;
    options.shard = {i, 3};
    const PrewarmReport report = prewarm(*stub.engine, items, options);
    CHECK(report.rows.size() + report.elsewhere == kernels);
    for (const PrewarmRow& row : report.rows) {
      CHECK(row.origin == "compiled");
      keys.insert(row.request_key);
    }
  }
  CHECK(keys.size() == kernels);
  CHECK(stub.compiler->compiles == static_cast<int>(kernels));
}

// A node walks over the tile that spilled, so both entries must be there.
TEST_CASE("a kernel that steps down leaves both entries") {
  const TempDirectory root;
  StubEngine one({.root = root / "cache", .has_device = false});
  one.compiler->spill_bytes = [first = std::string()](const Source& source) mutable {
    if (first.empty()) first = source.text;
    return source.text == first ? 8 : 0;
  };
  const auto items = {item("one", one_kernel_spec("", "", 128), {{90, 'a'}})};
  const auto rows = prewarm(*one.engine, items, {}).rows;
  REQUIRE(rows.size() == 1);
  REQUIRE(rows[0].status.ok());
  REQUIRE(rows[0].all_keys.size() == 2);
  CHECK(rows[0].all_keys[1] == rows[0].request_key);
  CHECK(rows[0].choice.classes[0].kv == 64);
  StubEngine two({.root = root / "cache", .jit = false});
  CHECK(two.open(one_kernel_spec("", "", 128))->prepare().ok());
  CHECK(two.engine->counters().disk_hits == 2);
}

// What stays in the memory of the process that prewarms is of no use to a node.
TEST_CASE("a kernel that cannot be kept has failed") {
  const TempDirectory root;
  StubEngine one({.root = root / "cache", .has_device = false});
  // A file stands where the entries' directory would.
  std::filesystem::create_directories(root / "cache/v1");
  std::ofstream(root / "cache/v1/k") << "in the way";
  const auto rows = prewarm(*one.engine, {item("one", one_kernel_spec(), {{90, 'a'}})}, {}).rows;
  REQUIRE(rows.size() == 1);
  CHECK(rows[0].status.code == Code::kCacheIo);
  CHECK(rows[0].origin.empty());
}

// The stub compiler is one of CUDA 13.0.
TEST_CASE(
    "a compiler too new for the oldest driver compiles nothing, and its entries are missing") {
  const TempDirectory root;
  const auto items = {item("one", one_kernel_spec(), {{90, 'a'}})};
  StubEngine old({.root = root / "cache", .has_device = false, .least_driver = 12080});
  auto rows = prewarm(*old.engine, items, {}).rows;
  CHECK(rows[0].status.code == Code::kDriverTooOld);
  CHECK(old.compiler->compiles == 0);
  StubEngine any({.root = root / "cache", .has_device = false});
  CHECK(prewarm(*any.engine, items, {}).rows[0].status.ok());
  PrewarmOptions check;
  check.check_only = true;
  CHECK(prewarm(*old.engine, items, check).rows[0].status.code == Code::kNotCached);
  StubEngine enough({.root = root / "cache", .has_device = false, .least_driver = 13000});
  CHECK(prewarm(*enough.engine, items, check).rows[0].status.ok());
}

}  // namespace
}  // namespace attnloom
