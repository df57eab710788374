// SPDX-License-Identifier: Apache-2.0
#include "render/headers.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

namespace attnloom {
namespace {

constexpr EmbeddedFile kFiles[] = {
    {"a.cuh", "#include \"loom/c.cuh\"\nint a;\n"},
    {"b.cuh", "#include \"a.cuh\"\n"},
    {"broken.cuh", "#include \"missing.cuh\"\n"},
    {"loom/c.cuh", "  #  include \"a.cuh\"\nconst char* s = \"#include \\\"b.cuh\\\"\";\n"},
};

std::vector<std::string> names(std::string_view text) {
  const Result<std::vector<Header>> headers = reachable_headers(text, kFiles);
  INFO(headers.status().to_string());
  REQUIRE(headers.ok());
  std::vector<std::string> list;
  for (const Header& header : *headers) list.push_back(header.name);
  return list;
}

using Names = std::vector<std::string>;

TEST_CASE("headers are reached through others, each once, in order of name") {
  CHECK(names("") == Names{});
  CHECK(names("int x;\n#include \"b.cuh\"") == Names{"a.cuh", "b.cuh", "loom/c.cuh"});
  CHECK(names("#include \"loom/c.cuh\"\n#include \"a.cuh\"\n") ==
        Names{"a.cuh", "loom/c.cuh"});  // a circle
  CHECK(names("// #include \"a.cuh\"\n#define X \"a.cuh\"\n#include\n#include <a.cuh>\n#") ==
        Names{});
  CHECK(reachable_headers("#include \"a.cuh\"", kFiles)->front() ==
        Header{"a.cuh", std::string(kFiles[0].text)});
}

TEST_CASE("a header that is not there is an error that names both files") {
  const Status status = reachable_headers("#include \"broken.cuh\"\n", kFiles).status();
  CHECK(status.code == Code::kTemplate);
  CHECK(status.path == "broken.cuh");
  CHECK(status.cause == "includes \"missing.cuh\", which is not in kernel_templates/");
}

TEST_CASE("files are found by their whole name") {
  CHECK(find_embedded("loom/c.cuh", kFiles) == &kFiles[3]);
  CHECK(find_embedded("c.cuh", kFiles) == nullptr);
  CHECK(find_embedded("", kFiles) == nullptr);
}

TEST_CASE("the embedded files are sorted and stripped, and remember their lines") {
  const std::span<const EmbeddedFile> files = embedded_files();
  REQUIRE(find_embedded("attention.mustache", files) != nullptr);
  const EmbeddedFile* plan = find_embedded("loom/plan.cuh", files);
  REQUIRE(plan != nullptr);
  for (std::size_t i = 1; i < files.size(); ++i) CHECK(files[i - 1].name < files[i].name);
  CHECK(plan->text.find("//") == std::string_view::npos);
  CHECK(plan->text.find("\n\n") == std::string_view::npos);
  CHECK(plan->text.rfind("#pragma once\n", 0) == 0);
  CHECK(embedded_source_line("loom/plan.cuh", 1) > 1);  // behind the comment that opens the file
  CHECK(embedded_source_line("nowhere.cuh", 7) == 7);
}

}  // namespace
}  // namespace attnloom
