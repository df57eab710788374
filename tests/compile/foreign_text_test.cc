// SPDX-License-Identifier: Apache-2.0
#include "compile/foreign_text.h"

#include <catch2/catch.hpp>

namespace attnloom {
namespace {

constexpr const char* kLeftOut = "[what was said about another file is left out]\n";
const std::vector<std::string_view> kOwn = {"attnloom.cu", "loom/tile.cuh"};

}  // namespace

TEST_CASE("what the front end says about our own files stays as it is") {
  const std::string log =
      "variant.logits_transform(1): error: identifier \"foo\" is undefined\n"
      "    foo(1): error: no\n    ^\n\n"
      "loom/tile.cuh(12): warning #177-D: variable \"a\" was declared\n"
      "attnloom.cu(3): catastrophic error: could not open source file \"/etc/x\"\n"
      "variant.prelude:end(1): error: expected a \";\"\n"
      "3 errors detected in the compilation of \"attnloom.cu\".\n"
      "ptxas info    : Used 8 registers\nno newline at the end";
  CHECK(without_foreign_text(log, kOwn) == log);
  CHECK(without_foreign_text("", kOwn).empty());
}

TEST_CASE("what it says about other files is left out, with the lines that it quotes") {
  const std::string passwd =
      "/etc/passwd(1): error: this declaration has no storage class\n"
      "  root:x:0:0:root\n  ^\n\n"
      "/etc/passwd(2): error: expected a \";\"\n  daemon:x\n";
  const std::string end = "2 errors detected in the compilation of \"attnloom.cu\".\n";
  CHECK(without_foreign_text(passwd + end, kOwn) == std::string(kLeftOut) + kLeftOut + end);
  const std::string own = "attnloom.cu(9): error: no\n  text\n";
  CHECK(without_foreign_text(own + passwd + own, kOwn) == own + kLeftOut + kLeftOut + own);
  CHECK(without_foreign_text(passwd + "ptxas info    : Used 8 registers\n", kOwn) ==
        std::string(kLeftOut) + kLeftOut + "ptxas info    : Used 8 registers\n");
  // Names that only look like ours.
  for (const char* name : {"/tmp/attnloom.cu", "./loom/tile.cuh", "x/variant.prelude", ""})
    CHECK(without_foreign_text(std::string(name) + "(1): error: s3cret\n", kOwn) == kLeftOut);
}

}  // namespace attnloom
