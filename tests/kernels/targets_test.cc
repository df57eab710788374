// SPDX-License-Identifier: Apache-2.0
// The kernels of a spec for every family of GPUs since Ampere: each compiles, and none that is used
// spills. (Whether they are right is told by the other tests here, whose PTX for sm_80 and sm_90a
// the simulator runs.)
#include <catch2/catch.hpp>
#include <memory>
#include <string>

#include "../compile/nvrtc_for_tests.h"
#include "render/render.h"
#include "spec/parse.h"
#include "spec/tiles.h"

namespace attnloom {
namespace {

std::string spec_text(const std::string& target, const std::string& kv) {
  return R"({"attnloom": 1, "kernel": "attention", "target": ")" + target +
         R"(", "dtype": {"q": "bf16", "kv": ")" + kv +
         R"(", "o": "bf16"}, "head_dim": {"qk": 128, "vo": 128}, "group_size": 4,
             "layout": {"kv": "paged", "page_size": 16},
             "variant": {"name": "causal", "mask": {"causal": true}}})";
}

// "16x64 168 regs": the kernel that the engine would use, which steps down while it spills.
std::string compiled(Toolchain& toolchain, const Spec& spec, KernelChoice choice) {
  for (;;) {
    const Result<Source> source = render(spec, choice);
    REQUIRE(source.ok());
    const Result<Artifact> artifact = toolchain.compile(*source);
    INFO(artifact.status().to_string());
    REQUIRE(artifact.ok());
    REQUIRE_FALSE(artifact->cubin.empty());
    const auto& entry = artifact->entries.front();
    if (entry.spill_store_bytes == 0) {
      const TileClass& tile = choice.classes.back();
      return std::to_string(tile.q) + "x" + std::to_string(tile.kv) + ": " +
             std::to_string(entry.registers) + " ";
    }
    const Result<KernelChoice> smaller = step_down(spec, choice);
    INFO("spills " << entry.spill_store_bytes << " bytes at the smallest KV tile");
    REQUIRE(smaller.ok());
    choice = *smaller;
  }
}

}  // namespace

TEST_CASE("every target since sm_80 gets kernels that do not spill") {
  const std::unique_ptr<Toolchain> toolchain = test_toolchain();
  for (const std::string target : {"sm_80", "sm_86", "sm_89", "sm_90a", "sm_100", "sm_120"}) {
    for (const std::string kv : {"bf16", "e4m3"}) {
      CAPTURE(target, kv);
      const Result<ParsedSpec> parsed = parse_spec(spec_text(target, kv));
      REQUIRE(parsed.ok());
      const Result<std::vector<KernelChoice>> kernels = kernel_set(parsed->spec);
      REQUIRE(kernels.ok());
      std::string registers;
      for (const KernelChoice& choice : *kernels)
        registers += compiled(*toolchain, parsed->spec, choice);
      WARN(target << " " << kv << ", registers a thread: " << registers);
    }
  }
}

}  // namespace attnloom
