// SPDX-License-Identifier: Apache-2.0
// What is refused, and how.
#include "sim_test.h"

namespace attnloom::sim {
namespace {

Status refusal(std::string_view body) {
  auto module = load_module(kernel_text(body));
  REQUIRE_FALSE(module.ok());
  CHECK(module.status().code == Code::kLoadFailed);
  return module.status();
}

TEST_CASE("An unknown form names opcode, line and kernel") {
  Status s = refusal("\n  frobnicate.f32 %d, %a;");
  CHECK(s.cause.find("frobnicate.f32") != std::string::npos);
  CHECK(s.cause.find("kernel k") != std::string::npos);
  CHECK(s.path == "ptx:18");
  CHECK(refusal("add.wonderful.f32 %d, %a, %b;").cause.find("'.wonderful'") != std::string::npos);
  CHECK(refusal("add.b8 %d, %a, %b;").cause.find("add.b8") != std::string::npos);
  CHECK(refusal("atom.global.min.f32 %d, [%in], %a;").cause.find("atom.global.min.f32") !=
        std::string::npos);
  CHECK(refusal("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%r1, %r2}, {%r1, %r2, %r3, "
                "%r4}, {%r5, %r6}, {%r1, %r2};")
            .cause.find("mma.sync") != std::string::npos);
  CHECK(refusal("cp.async.cg.shared.global [%r1], [%in], 8;").cause.find("cp.async.cg") !=
        std::string::npos);
  CHECK(refusal("cvt.rn.e4m3x2.f32 %h1, %a, %b;").cause.find("cvt.rn.e4m3x2") != std::string::npos);
  CHECK(refusal("bra NOWHERE;").cause.find("NOWHERE") != std::string::npos);
  CHECK(refusal("call nobody;").cause.find("nobody") != std::string::npos);
  CHECK(refusal("mov.u32 %d, %unknown_special;").cause.find("%unknown_special") !=
        std::string::npos);
}

TEST_CASE("Broken text is an error with its line") {
  auto status = [](std::string_view text) { return load_module(text).status(); };
  CHECK(status("").code == Code::kLoadFailed);
  CHECK(status(".version 8.0\n.target sm_80\n.entry k(").code == Code::kLoadFailed);
  CHECK(status(".version 8.0\n.target sm_80\n.entry k() { add.u32 ").code == Code::kLoadFailed);
  CHECK(status(".version 8.0\n.target sm_80\n}").path == "ptx:3");
  CHECK(status(".version 8.0\n.target sm_80\n.func f() { ret; }").code == Code::kLoadFailed);
}

TEST_CASE("Recursion is refused") {
  auto module = load_module(kernel_text("call loop;", ".func loop() { call loop; ret; }\n"));
  REQUIRE_FALSE(module.ok());
  CHECK(module.status().cause.find("recursive") != std::string::npos);
}

TEST_CASE("A launch that cannot be") {
  Memory memory;
  auto module = load_module(kernel_text(""));
  REQUIRE(module.ok());
  CHECK((*module)->has_entry("k"));
  CHECK_FALSE((*module)->has_entry("j"));
  std::byte params[24] = {};
  LaunchConfig good;
  good.entry = "k";
  good.block[0] = 32;
  good.params = params;
  const Profile& h200 = *find_profile("h200");
  auto code = [&](const LaunchConfig& c) {
    return launch(h200, **module, memory, c, {}).status().code;
  };
  CHECK(code(good) == Code::kOk);
  LaunchConfig c = good;
  c.entry = "j";
  CHECK(code(c) == Code::kLaunch);
  c = good;
  c.block[0] = 2048;
  CHECK(code(c) == Code::kLaunch);
  c = good;
  c.grid[1] = 0;
  CHECK(code(c) == Code::kLaunch);
  c = good;
  c.dynamic_shared_bytes = 300 * 1024;
  CHECK(code(c) == Code::kLaunch);
  c = good;
  c.params = c.params.first(8);
  CHECK(code(c) == Code::kLaunch);
}

TEST_CASE("Modules of a newer target are refused") {
  Memory memory;
  std::string text = kernel_text("");
  text.replace(text.find("sm_80"), 5, "sm_90a");
  auto module = load_module(text);
  REQUIRE(module.ok());
  std::byte params[24] = {};
  LaunchConfig c;
  c.entry = "k";
  c.params = params;
  CHECK(launch(*find_profile("h200"), **module, memory, c, {}).ok());
  CHECK(launch(*find_profile("a100"), **module, memory, c, {}).status().code ==
        Code::kArchMismatch);
  CHECK(profiles()[0].name == "h200");
  CHECK(find_profile("gtx") == nullptr);
}

TEST_CASE("Line information gives CUDA places; sections are skipped") {
  std::string text = kernel_text(
      "\n  .loc 1 16 3, function_name NAME, inlined_at 1 40 5\n  ld.shared.u32 %r1, [4096];\n");
  text +=
      "\n.file 1 \"/somewhere/loom/copy.cuh\", 0, 0\n.section .debug_str\n{\nNAME:\n.b8 95,0\n}\n";
  auto module = load_module(text);
  REQUIRE(module.ok());
  Memory memory;
  std::byte params[24] = {};
  LaunchConfig c;
  c.entry = "k";
  c.params = params;
  auto report = launch(*find_profile("h200"), **module, memory, c, {});
  REQUIRE(report.ok());
  REQUIRE(report->findings.size() == 1);
  CHECK(report->findings[0].place == "loom/copy.cuh:16");
  CHECK(report->findings[0].kernel == "k");
  CHECK(report->findings[0].detail.find("inlined at loom/copy.cuh:40") != std::string::npos);
}

}  // namespace
}  // namespace attnloom::sim
