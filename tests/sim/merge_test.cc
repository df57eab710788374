// SPDX-License-Identifier: Apache-2.0
// The last arriver's protocol (merge.cu): the correct kernels are clean under every order, each
// planted fault is found under every order.
#include <fstream>
#include <numeric>
#include <sstream>

#include "sim_test.h"

namespace attnloom::sim {
namespace {

constexpr unsigned kThreads = 128, kSplits = 5, kTiles = 3;

struct Merge {
  std::vector<float> out;
  std::vector<Report> reports;

  bool has(std::string_view kind) const {
    for (const Report& r : reports) {
      for (const Finding& f : r.findings) {
        if (f.kind == kind) return true;
      }
    }
    return false;
  }
  bool is_clean() const {
    for (const Report& r : reports) {
      if (!r.findings.empty()) return false;
    }
    return true;
  }
};

std::shared_ptr<const Module> load(int fault) {
  std::ifstream file(std::string(ATTNLOOM_SIM_PTX) + "/merge_" + std::to_string(fault) + ".ptx");
  std::stringstream text;
  text << file.rdbuf();
  auto module = load_module(text.str());
  REQUIRE(module.ok());
  return *module;
}

std::vector<float> wanted() {
  std::vector<float> sums(kTiles * kThreads, 0);
  for (unsigned tile = 0; tile < kTiles; ++tile) {
    for (unsigned s = 0; s < kSplits; ++s) {
      for (unsigned t = 0; t < kThreads; ++t)
        sums[tile * kThreads + t] += 2.0f * static_cast<float>((tile * kSplits + s) * kThreads + t);
    }
  }
  return sums;
}

Merge run_merge(const Module& module, std::uint64_t seed, int launches = 1) {
  Memory memory;
  std::size_t slots = kSplits * kTiles * kThreads;
  std::vector<float> in(slots);
  std::iota(in.begin(), in.end(), 0.0f);
  struct {
    std::uint64_t in, partial, counters, out;
    std::uint32_t splits, unused;
  } params = {memory.allocate(slots * 4, "in").value(),
              memory.allocate(slots * 4, "partial").value(),
              memory.allocate(kTiles * 4, "counters").value(),
              memory.allocate(kTiles * kThreads * 4, "out").value(),
              kSplits,
              0};
  REQUIRE(memory.write(params.in, std::as_bytes(std::span(in))).ok());
  REQUIRE(memory.fill(params.counters, 0, kTiles * 4).ok());
  LaunchConfig config;
  config.entry = "merge";
  config.grid[0] = kSplits;
  config.grid[1] = kTiles;
  config.block[0] = kThreads;
  config.params = std::as_bytes(std::span(&params, 1));
  Merge result;
  for (int k = 0; k < launches; ++k) {
    REQUIRE(memory.fill(params.out, 0, kTiles * kThreads * 4).ok());
    Options options;
    options.seed = seed + static_cast<std::uint64_t>(k) * 1000;
    auto report = launch(*find_profile("h200"), module, memory, config, options);
    REQUIRE(report.ok());
    result.reports.push_back(*report);
  }
  result.out.resize(kTiles * kThreads);
  REQUIRE(memory.read(params.out, std::as_writable_bytes(std::span(result.out))).ok());
  return result;
}

TEST_CASE("The correct merge is clean and right under every order, launch after launch") {
  for (int correct : {0, 7}) {
    auto module = load(correct);
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      INFO("variant " << correct << " seed " << seed);
      Merge m = run_merge(*module, seed, 2);
      for (const Report& r : m.reports) {
        for (const Finding& f : r.findings)
          UNSCOPED_INFO(f.kind << " " << f.place << " " << f.detail);
      }
      CHECK(m.is_clean());
      CHECK(m.out == wanted());
    }
  }
}

TEST_CASE("Each fault of synchronisation is a race in global memory under every order") {
  // 1 no fence, 2 counted before stored, 5 merged too early, 6 no barrier, 8 fence of the CTA only,
  // 9 reader's fence.
  for (int fault : {1, 2, 5, 6, 8, 9}) {
    auto module = load(fault);
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      INFO("fault " << fault << " seed " << seed);
      Merge m = run_merge(*module, seed);
      CHECK(m.has("race-global"));
    }
  }
}

TEST_CASE("A race names both places") {
  Merge m = run_merge(*load(1), 3);
  bool found = false;
  for (const Finding& f : m.reports[0].findings) {
    if (f.kind != "race-global") continue;
    found = found ||
            (f.place.starts_with("merge.cu:") && f.detail.find("merge.cu:") != std::string::npos &&
             f.detail.find("partial+") != std::string::npos);
  }
  CHECK(found);
}

TEST_CASE("Faults that are no races give wrong numbers") {
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    CHECK(run_merge(*load(3), seed, 1).out == wanted());
    CHECK(run_merge(*load(3), seed, 2).out != wanted());
    CHECK(run_merge(*load(4), seed).out != wanted());
  }
}

TEST_CASE("Merging too early reads what nobody wrote") {
  CHECK(run_merge(*load(5), 1).has("uninitialised-global"));
}

}  // namespace
}  // namespace attnloom::sim
