// SPDX-License-Identifier: Apache-2.0
#include "engine/log.h"

#include <catch2/catch.hpp>
#include <stdexcept>
#include <vector>

namespace attnloom {
namespace {

TEST_CASE("lines below the least level are dropped, text is passed as it is") {
  std::vector<std::pair<LogLevel, std::string>> lines;
  const Log log([&](LogLevel level, const std::string& line) { lines.emplace_back(level, line); },
                LogLevel::kInfo);
  log.debug("no");
  log.info("{} is not a format");
  log.warn("yes");
  REQUIRE(lines.size() == 2);
  CHECK(lines[0] == std::pair<LogLevel, std::string>(LogLevel::kInfo, "{} is not a format"));
  CHECK(lines[1].first == LogLevel::kWarning);
}

TEST_CASE("a callback that throws does not reach the library") {
  const Log log([](LogLevel, const std::string&) { throw std::runtime_error("callback"); },
                LogLevel::kDebug);
  CHECK_NOTHROW(log.warn("x"));
}

TEST_CASE("a log without a callback drops everything") {
  CHECK_NOTHROW(Log().warn("x"));
}

}  // namespace
}  // namespace attnloom
