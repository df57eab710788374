// SPDX-License-Identifier: Apache-2.0
// The case files of the tree against the reference alone: a case whose expectation is wrong fails
// here, not as a kernel's fault.
#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tools/case/case_file.h"
#include "tools/case/judge.h"

namespace attnloom {
namespace {

std::string text_of(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

TEST_CASE("The example of docs/CASES.md holds") {
  const std::string page = text_of(std::filesystem::path(ATTNLOOM_SOURCE_DIR) / "docs/CASES.md");
  const std::string fence = "```";
  const auto start = page.find(fence + "json\n") + fence.size() + 5;
  const auto file = parse_case(page.substr(start, page.find(fence, start) - start), "");
  CAPTURE(file.status().to_string());
  REQUIRE(file.ok());
  const auto wanted = solve_case(*file);
  REQUIRE(wanted.ok());
  CHECK(compare_with_expect(*file, wanted->output)->pass);
}

TEST_CASE("Every worked case of the tree holds by the reference") {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(
           std::filesystem::path(ATTNLOOM_SOURCE_DIR) / "tests/cases")) {
    if (entry.path().extension() == ".json") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  int solved = 0;
  for (const std::filesystem::path& path : paths) {
    CAPTURE(path.filename().string());
    const auto file = parse_case(text_of(path), path.parent_path().string());
    CAPTURE(file.status().to_string());
    REQUIRE(file.ok());
    const auto wanted = solve_case(*file);
    // Functors of its own: only a device can solve it.
    if (wanted.status().code == Code::kSpecUnsupported) continue;
    ++solved;
    CAPTURE(wanted.status().to_string());
    REQUIRE(wanted.ok());
    const auto expected = compare_with_expect(*file, wanted->output);
    REQUIRE(expected.has_value());
    CAPTURE(expected->failure);
    CHECK(expected->pass);
  }
  CHECK(solved > 0);
}

}  // namespace
}  // namespace attnloom
