// SPDX-License-Identifier: Apache-2.0
// What a second compile thread gains: four kernels asked for at once, through an engine whose pool
// has one thread and one whose pool has two, in turn. Wall time, so the machine must be quiet.
// NVRTC is found as by the library; ATTNLOOM_NVRTC names another. bench/record.py runs it.
#include <benchmark/benchmark.h>
#include <stdlib.h>

#include <chrono>
#include <string>
#include <utility>

#include "engine/engine.h"
#include "engine/pending.h"

namespace {

using namespace attnloom;  // NOLINT: a program of one file

constexpr int kKernels = 4;

std::string spec_of(int number) {
  return R"({"attnloom": 1, "kernel": "attention", "target": "sm_90a",
    "dtype": {"q": "bf16", "kv": "bf16", "o": "bf16"}, "head_dim": {"qk": 128, "vo": 128},
    "group_size": 4, "layout": {"kv": "paged", "page_size": 16}, "tile": {"q": 64, "kv": 64},
    "variant": {"name": "causal", "mask": {"causal": true},
      "logits_transform": "return logits + )" +
         std::to_string(number) + R"(.0f;"}})";
}

// Seconds for all kernels, cold: this engine has no cache.
Result<double> compile_all(int jobs) {
  EngineOptions options;
  options.files = make_real_file_system();
  NvrtcSearch search;
  if (const char* path = ::getenv("ATTNLOOM_NVRTC")) search.path = path;
  options.toolchain = make_nvrtc_toolchain(search);
  options.jobs = jobs;
  // Finding and loading the library is once a process.
  ATTNLOOM_CHECK(options.toolchain->fingerprint().status());
  Engine engine(std::move(options));
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::shared_ptr<Pending>> pendings;
  for (int i = 0; i < kKernels; ++i) {
    ATTNLOOM_TRY(std::shared_ptr<KernelSet> kernels, engine.open(spec_of(i)));
    pendings.push_back(Pending::start(std::move(kernels), Priority::kRequest, {}));
  }
  for (const auto& pending : pendings) ATTNLOOM_CHECK(*pending->wait(std::nullopt));
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void two_threads(benchmark::State& state) {
  double one = 0;
  double two = 0;
  for (auto _ : state) {
    for (const int jobs : {1, 2}) {
      const Result<double> seconds = compile_all(jobs);
      if (!seconds.ok()) return state.SkipWithError(seconds.status().to_string().c_str());
      (jobs == 1 ? one : two) += *seconds;
    }
  }
  state.counters["one_thread_s"] = one / static_cast<double>(state.iterations());
  state.counters["two_threads_s"] = two / static_cast<double>(state.iterations());
  state.counters["gain"] = one / two;
}
BENCHMARK(two_threads)->Iterations(1)->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace
