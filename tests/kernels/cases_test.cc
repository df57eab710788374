// SPDX-License-Identifier: Apache-2.0
// Every case file of tests/cases: worked values, the float64 reference and a clean simulator.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "kernels/kernel_rig.h"

namespace attnloom::testing {
namespace {

// ATTNLOOM_TEST_CASES on a machine that did not build this program.
std::string cases_folder() {
  const char* folder = std::getenv("ATTNLOOM_TEST_CASES");
  return folder != nullptr ? folder : ATTNLOOM_CASES_DIR;
}

std::vector<std::filesystem::path> case_files() {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(cases_folder())) {
    if (entry.path().extension() == ".json") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::string read_text(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

TEST_CASE("every case file gives its worked values", "[cases]") {
  const std::vector<std::filesystem::path> paths = case_files();
  REQUIRE(paths.size() >= 30);
  const std::unique_ptr<Engine> engine = make_test_engine();
  for (const std::filesystem::path& path : paths) {
    INFO(path.filename().string());
    const CaseFile file = parse_or_fail(read_text(path));
    REQUIRE(file.expect.has_value());
    CHECK(judge_run(file, run_case(*engine, file)) == "");
  }
}

}  // namespace attnloom::testing
