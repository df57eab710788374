// SPDX-License-Identifier: Apache-2.0
// The kernels of target_specs.h for every family of GPUs since Ampere: each compiles, none that is
// used spills, and what it takes of registers is left as registers_TARGET.json in the working
// folder, of which bench/registers.py makes docs/REGISTERS.md. The PTX for sm_80 of each runs on
// the simulated a100 and is judged by the float64 reference.
#include <catch2/catch.hpp>
#include <fstream>
#include <memory>
#include <set>
#include <string>

#include "kernels/kernel_rig.h"
#include "kernels/target_specs.h"

namespace attnloom::testing {
namespace {

constexpr std::uint64_t kSeed = 20270201;

// {"tile": "16x64", "registers": 168, "spills": 0}
Json figures_of(const AcquiredKernel& kernel) {
  std::string tile;
  for (const TileClass& one : kernel.choice.classes)
    tile += (tile.empty() ? "" : "+") + std::to_string(one.q) + "x" + std::to_string(one.kv);
  return {{"tile", tile},
          {"registers", kernel.figures.registers},
          {"spills", kernel.figures.spill_store_bytes}};
}

// Of every kernel that the spec stands for, as the engine would use them.
Json compile_for(Engine& engine, const TargetSpec& entry, const std::string& target) {
  INFO(entry.name << " for " << target);
  Json spec = entry.spec;
  spec["target"] = target;
  const Result<std::shared_ptr<KernelSet>> kernels = engine.open(spec.dump());
  INFO(kernels.status().to_string());
  REQUIRE(kernels.ok());
  const Status prepared = (*kernels)->prepare();
  INFO(prepared.to_string());
  REQUIRE(prepared.ok());
  Json figures = Json::array();
  for (int i = 0; i < (*kernels)->size(); ++i) {
    const AcquiredKernel& kernel = *(*kernels)->acquired(i);
    figures.push_back(figures_of(kernel));
    INFO(figures.back().dump());
    CHECK(kernel.target == target);
    CHECK(kernel.figures.spill_store_bytes == 0);
    CHECK(kernel.figures.registers > 0);
  }
  return {{"name", entry.name}, {"kernels", figures}};
}

void compile_all_for(const std::string& target) {
  const std::unique_ptr<Engine> engine = make_compiling_engine();
  const Result<Fingerprint> compiler = make_test_toolchain()->fingerprint();
  REQUIRE(compiler.ok());
  Json rows = Json::array();
  for (const TargetSpec& entry : target_specs())
    rows.push_back(compile_for(*engine, entry, target));
  for (const TargetSpec& entry : helper_specs())
    rows.push_back(compile_for(*engine, entry, target));
  std::ofstream out("registers_" + target + ".json");
  out << Json({{"target", target},
               {"nvrtc",
                std::to_string(compiler->cuda_major) + "." + std::to_string(compiler->cuda_minor)},
               {"specs", rows}})
             .dump(1)
      << "\n";
  REQUIRE(out.good());
}

}  // namespace

TEST_CASE("kernels for sm_80 do not spill", "[sm_80]") {
  compile_all_for("sm_80");
}

TEST_CASE("kernels for sm_86 do not spill", "[sm_86]") {
  compile_all_for("sm_86");
}

TEST_CASE("kernels for sm_89 do not spill", "[sm_89]") {
  compile_all_for("sm_89");
}

TEST_CASE("kernels for sm_90a do not spill", "[sm_90a]") {
  compile_all_for("sm_90a");
}

TEST_CASE("kernels for sm_100 do not spill", "[sm_100]") {
  compile_all_for("sm_100");
}

TEST_CASE("kernels for sm_120 do not spill", "[sm_120]") {
  compile_all_for("sm_120");
}

TEST_CASE("kernels for sm_80 agree with the reference on an a100", "[a100]") {
  const std::unique_ptr<Engine> engine = make_test_engine(kSeed, "a100");
  for (const TargetSpec& entry : target_specs()) {
    std::set<int> launched;
    std::ptrdiff_t size = 0;
    for (const auto& lengths : batches_of_every_class()) {
      const std::string text = case_for_target(entry.spec, "sm_80", lengths).dump();
      INFO(text);
      const CaseFile file = parse_or_fail(text, kSeed);
      const Result<CaseRun> run = run_case(*engine, file);
      CHECK(judge_run(file, run) == "");
      if (!run.ok()) continue;
      // No batch here is long enough for the largest tile; the sweep names it.
      const std::vector<KernelChoice> choices = run->kernels->choices();
      size = std::count_if(choices.begin(), choices.end(), [](const KernelChoice& choice) {
        return choice.classes.front().q < kLongQueryTile;
      });
      launched.insert(run->kernel);
      CHECK(run->kernels->acquired(run->kernel)->target == "sm_80");
    }
    INFO(entry.name);
    CHECK(std::ssize(launched) == size);
  }
}

}  // namespace attnloom::testing
