// SPDX-License-Identifier: Apache-2.0
#include "compile/compiler_log.h"

#include <catch2/catch.hpp>

namespace attnloom {
namespace {

const Status kFallback = make_error(Code::kCompileFailed, "", "no line");

Status failure(std::string_view log) {
  return failure_in_log(log, kFallback);
}

}  // namespace

TEST_CASE("an error in a functor names the field and its line") {
  const Status status = failure(
      "variant.logits_transform(3): error: identifier \"foo\" is undefined\n"
      "  return foo;\n"
      "         ^\n"
      "\n"
      "attnloom.cu(9): error: another\n"
      "2 errors detected in the compilation of \"attnloom.cu\".\n");
  CHECK(status.code == Code::kCompileFailed);
  CHECK(status.path == "$.variant.logits_transform");
  CHECK(status.cause == "variant.logits_transform:3: identifier \"foo\" is undefined");
  CHECK_FALSE(status.remedy.empty());
}

TEST_CASE("warnings before the error are passed over") {
  const Status status = failure(
      "variant.prelude(1): warning #177-D: variable \"error\" was declared (but never) used\n"
      "variant.prelude(2): error #20-D: f(x): error\n");
  CHECK(status.path == "$.variant.prelude");
  CHECK(status.cause == "variant.prelude:2: f(x): error");
}

TEST_CASE("an error right behind a functor is the functor's") {
  const Status status = failure("variant.logits_transform:end(1): error: expected a \";\"\n");
  CHECK(status.code == Code::kCompileFailed);
  CHECK(status.path == "$.variant.logits_transform");
  CHECK(status.cause == "variant.logits_transform: at the end of the text: expected a \";\"");
  CHECK(status.remedy.find("lack a ';'") != std::string::npos);
}

TEST_CASE("the remedy for host code is __device__, not an option of the compiler") {
  for (const std::string kind : {"function", "variable"}) {
    const Status status =
        failure("variant.prelude(2): error: A " + kind +
                " without annotations is not allowed in JIT mode. Consider using -default-device "
                "flag to process it\n");
    CHECK(status.code == Code::kCompileFailed);
    CHECK(status.path == "$.variant.prelude");
    CHECK(status.cause ==
          "variant.prelude:2: A " + kind + " without annotations is not allowed in JIT mode.");
    CHECK(status.remedy.find("write __device__ ") == 0);
    CHECK(status.remedy.find("before the " + kind) != std::string::npos);
  }
}

TEST_CASE("an error in our own text is TEMPLATE") {
  for (const std::string file : {"loom/tile.cuh", "attnloom.cu"}) {
    const Status status = failure(file + "(12): error: expected a \";\"\n");
    CHECK(status.code == Code::kTemplate);
    CHECK(status.path.empty());
    CHECK(status.cause == file + ":12: expected a \";\"");
  }
  const Status missing = failure(
      "attnloom.cu(1): catastrophic error: could not open source file \"loom/b.cuh\" (no "
      "directories "
      "in search list)\n");
  CHECK(missing.code == Code::kTemplate);
  CHECK(missing.cause.find("attnloom.cu:1: could not open source file \"loom/b.cuh\"") == 0);
}

TEST_CASE("want of memory in a tool is no fault of the text") {
  const Status status = failure_in_log("ptxas fatal   : Memory allocation failure\n", kFallback);
  CHECK(status.code == Code::kOutOfMemory);
  CHECK(status.cause == "the compiler ran out of memory: Memory allocation failure");
}

TEST_CASE("too much shared memory is a limit with both numbers") {
  const Status status = failure(
      "ptxas error   : Entry function 'k' uses too much shared data (0x61a80 bytes, 0x38c00 "
      "max)\n");
  CHECK(status.code == Code::kResourceLimit);
  CHECK(status.cause.find(
            "kernel \"k\" needs 400000 bytes of shared data; the target has 232448") == 0);
}

TEST_CASE("ptxas errors have no file") {
  const Status assembly = failure(
      "ptxas application ptx input, line 28; error   : Unknown modifier '.inst'\n"
      "ptxas fatal   : Ptx assembly aborted due to errors\n");
  CHECK(assembly.code == Code::kCompileFailed);
  CHECK(assembly.cause == "Unknown modifier '.inst'");
  const Status target = failure(
      "ptxas application ptx input, line 26; error   : Instruction 'setmaxnreg.inc' not supported "
      "on "
      ".target 'sm_90'\n");
  CHECK(target.code == Code::kSpecUnsupported);
  CHECK(target.path == "$.target");
}

TEST_CASE("a log without an error yields the fallback") {
  CHECK(failure("").cause == "no line");
  CHECK(failure("ptxas info    : 0 bytes gmem\nptxas info    : error free\n").cause == "no line");
  CHECK_FALSE(names_an_error("ptxas info    : Compile time = 1 ms\n"));
}

TEST_CASE("each fatal ptxas remark refuses the kernel and is named") {
  for (const std::string number : {"C7508", "C7510", "C7512", "C7513", "C7514", "C7520"}) {
    const Status status = fatal_remark_in_log("ptxas info    : 0 bytes gmem\nptxas info    : (" +
                                              number + ") Potential Performance Loss: why\n");
    CHECK(status.code == (number == "C7512" ? Code::kResourceLimit : Code::kCompileFailed));
    CHECK(status.cause.find("ptxas remark " + number + ": ") == 0);
    CHECK(status.cause.find("Potential Performance Loss: why") != std::string::npos);
  }
  CHECK(fatal_remark_in_log("ptxas info    : (C7519) Potential Performance Loss: injected\n").ok());
  CHECK(fatal_remark_in_log("ptxas info    : (C7517) injected\nptxas info    : C7512\n").ok());
}

TEST_CASE("spills go to the entry that is being compiled, called functions included") {
  std::vector<EntryFigures> entries = {{.name = "k2"}, {.name = "k3"}, {.name = "absent"}};
  read_spills(
      "ptxas info    : Compiling entry function 'k3' for 'sm_90a'\n"
      "ptxas info    : Function properties for k3\n"
      "ptxas         .     256 bytes stack frame, 0 bytes spill stores, 8 bytes spill loads\n"
      "ptxas info    : Used 168 registers, used 0 barriers, 256 bytes cumulative stack size\n"
      "ptxas info    : Compiling entry function 'other' for 'sm_90a'\n"
      "    880 bytes stack frame, 77 bytes spill stores, 77 bytes spill loads\n"
      "ptxas info    : Compiling entry function 'k2' for 'sm_90a'\n"
      "    880 bytes stack frame, 1192 bytes spill stores, 1216 bytes spill loads\n"
      "ptxas info    : Function properties for _Z3foo\n"
      "    0 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads\n",
      entries);
  CHECK(entries[0].spill_store_bytes == 1196);
  CHECK(entries[0].spill_load_bytes == 1220);
  CHECK(entries[1].spill_store_bytes == 0);
  CHECK(entries[1].spill_load_bytes == 8);
  CHECK(entries[2] == EntryFigures{.name = "absent"});
}

TEST_CASE("what differs from run to run is not kept") {
  CHECK(stable_log(
            "\nptxas info    : Used 8 registers\nptxas info    : Compile time = 19.244 ms\n\n") ==
        "ptxas info    : Used 8 registers\n");
}

}  // namespace attnloom
