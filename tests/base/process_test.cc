// SPDX-License-Identifier: Apache-2.0
#include "base/process.h"

#include <catch2/catch.hpp>
#include <csignal>

namespace attnloom {
namespace {

TEST_CASE("Output, errors and exit code come back") {
  const auto result = run_process({"sh", "-c", "echo out; echo err >&2; exit 3"});
  REQUIRE(result.ok());
  CHECK(result->exit_code == 3);
  CHECK(result->output == "out\n");
  CHECK(result->errors == "err\n");
}

TEST_CASE("Arguments pass as they are") {
  const auto result = run_process({"printf", "%s|", "a b", "$HOME;`x`", "", "\"'"});
  REQUIRE(result.ok());
  CHECK(result->output == "a b|$HOME;`x`||\"'|");
}

TEST_CASE("Both streams may be larger than a pipe") {
  const auto result = run_process(
      {"sh", "-c",
       "head -c 300000 /dev/zero >&2; head -c 300000 /dev/zero; head -c 1 /dev/zero >&2"});
  REQUIRE(result.ok());
  CHECK(result->output.size() == 300'000);
  CHECK(result->errors.size() == 300'001);
}

TEST_CASE("Standard input is empty and a signal shows") {
  CHECK(run_process({"cat"})->output.empty());
  CHECK(run_process({"sh", "-c", "kill -KILL $$"})->exit_code == 128 + SIGKILL);
}

TEST_CASE("What cannot be started is an error") {
  const auto missing = run_process({"/nonexistent/program"});
  REQUIRE_FALSE(missing.ok());
  CHECK(missing.status().path == "/nonexistent/program");
  CHECK(run_process({}).status().code == Code::kArgumentInvalid);
}

}  // namespace
}  // namespace attnloom
