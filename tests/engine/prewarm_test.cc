// SPDX-License-Identifier: Apache-2.0
#include "engine/prewarm.h"

#include <catch2/catch.hpp>

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
                            options);
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
  auto rows = prewarm(*one.engine, items, check);
  REQUIRE(rows.size() == 1);
  CHECK(rows[0].status.code == Code::kNotCached);
  CHECK(rows[0].request_key.size() == 64);
  CHECK(one.compiler->compiles == 0);
  REQUIRE(prewarm(*one.engine, items, {})[0].status.ok());
  rows = prewarm(*one.engine, items, check);
  CHECK(rows[0].status.ok());
  CHECK(one.compiler->compiles == 1);
}

TEST_CASE("a spec or target that is refused is one row, and the others are made") {
  StubEngine one({.root = "", .has_device = false});
  const auto rows = prewarm(
      *one.engine,
      {item("old", one_kernel_spec(), {{75, '\0'}}), item("one", one_kernel_spec(), {{90, 'a'}})},
      {});
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].status.code == Code::kSpecUnsupported);
  CHECK(rows[1].status.ok());
}

}  // namespace
}  // namespace attnloom
