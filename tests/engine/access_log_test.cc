// SPDX-License-Identifier: Apache-2.0
#include "engine/access_log.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "engine/manifest.h"
#include "engine/manifest_log.h"
#include "engine/stubs.h"

namespace attnloom {
namespace {

std::string read_file(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<Json> lines_of(const std::string& text) {
  std::vector<Json> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    REQUIRE(end != std::string::npos);
    lines.push_back(Json::parse(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  return lines;
}

TEST_CASE("a kernel is one line of the access log, when it is first acquired") {
  const TempDirectory root;
  StubEngine one({.root = root / "cache", .access_log = root / "log"});
  const std::shared_ptr<KernelSet> kernels = one.open(auto_spec());
  CHECK_FALSE(std::filesystem::exists(root / "log"));
  REQUIRE(kernels->acquire(1).ok());
  REQUIRE(kernels->acquire(1).ok());
  // Another set of the same kernels.
  REQUIRE(one.open(auto_spec())->acquire(1).ok());
  auto lines = lines_of(read_file(root / "log"));
  REQUIRE(lines.size() == 1);
  CHECK(lines[0]["request_key"] == kernels->request_key(1).value());
  CHECK(lines[0]["source"] == "compiled");
  CHECK(lines[0]["target"] == "sm_90a");
  CHECK(lines[0]["spec"] == spec_to_json(kernels->spec()));
  CHECK(lines[0]["spec"]["target"] == "sm_90a");
  // Another process goes on in the file.
  StubEngine two({.root = root / "cache", .access_log = root / "log"});
  REQUIRE(two.open(auto_spec())->prepare().ok());
  lines = lines_of(read_file(root / "log"));
  CHECK(static_cast<int>(lines.size()) == 1 + kernels->size());
  CHECK(lines[2]["source"] == "disk");
}

TEST_CASE("threads write whole lines") {
  const TempDirectory root;
  StubEngine one({.root = "", .access_log = root / "log"});
  std::vector<std::jthread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&] {
      for (const char* target : {"sm_80", "sm_86", "sm_90", "sm_90a"}) {
        const std::string head = std::string("\"target\": \"") + target + "\", ";
        (void)(*one.engine->open(one_kernel_spec("", head)))->prepare();
      }
    });
  threads.clear();
  CHECK(lines_of(read_file(root / "log")).size() == 2);  // sm_90a's device takes no other but sm_90
}

TEST_CASE("an access log that cannot be written is one warning and no failure") {
  const TempDirectory root;
  StubEngine one({.root = "", .access_log = root / "absent/log"});
  REQUIRE(one.open(auto_spec())->prepare().ok());
  int warnings = 0;
  for (const std::string& line : one.log)
    if (line.find("absent/log cannot be written: No such file") != std::string::npos) ++warnings;
  CHECK(warnings == 1);
}

TEST_CASE("access logs become a manifest of their specs, the same in any order") {
  const TempDirectory root;
  StubEngine one({.root = "", .has_device = false, .access_log = root / "log"});
  for (const char* target : {"sm_90a", "sm_80"}) {
    const std::string head = std::string("\"target\": \"") + target + "\", ";
    REQUIRE(one.open(one_kernel_spec("", head))->prepare().ok());
  }
  REQUIRE(one.open(one_kernel_spec("\"mask\": {\"causal\": true}", "\"target\": \"sm_80\", "))
              ->prepare()
              .ok());
  const std::string text = read_file(root / "log");
  const Result<LogManifest> made = manifest_from_logs({text, text.substr(0, 100)});
  REQUIRE(made.ok());
  CHECK(made->lines == 3);
  CHECK(made->skipped == 1);
  REQUIRE(made->manifest["specs"].size() == 2);
  CHECK(made->manifest["specs"][0]["targets"] == Json({"sm_80", "sm_90a"}));
  const std::size_t first = text.find('\n') + 1;
  CHECK(manifest_from_logs({text.substr(first), text.substr(0, first)})->manifest ==
        made->manifest);
  const Result<Manifest> manifest = parse_manifest(made->manifest.dump(), {});
  INFO(manifest.status().to_string());
  REQUIRE(manifest.ok());
  const PrewarmReport report = prewarm(*one.engine, manifest->items, {});
  CHECK(report.rows.size() == 3);
  CHECK(one.compiler->compiles == 3);
  CHECK(manifest_from_logs({"{}\n[1]\nnot JSON\n"}).status().code == Code::kSpecInvalid);
}

}  // namespace
}  // namespace attnloom
