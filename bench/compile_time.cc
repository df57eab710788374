// SPDX-License-Identifier: Apache-2.0
// What a miss costs: NVRTC on our attention kernels and on programs of two sizes, the keys. NVRTC
// is found as by the library; ATTNLOOM_NVRTC names another. bench/record.py runs it;
// docs/BENCHMARKS.md tells what the figures mean.
#include <benchmark/benchmark.h>
#include <stdlib.h>

#include <memory>
#include <string>
#include <vector>

#include "cache/key.h"
#include "compile/toolchain.h"
#include "render/render.h"
#include "spec/parse.h"
#include "spec/tiles.h"

namespace {

using namespace attnloom;  // NOLINT: a program of one file

// `statements` fused multiply-adds that no compiler can fold.
Source source_of(int statements) {
  Source source;
  source.text = "extern \"C\" __global__ void one(float* out) {\n  float a = *out, b = out[1];\n";
  for (int i = 0; i < statements; ++i) {
    source.text += "  a = a * b + out[" + std::to_string(i) + "]; b = b * a + a;\n";
  }
  source.text += "  *out = a + b;\n}\n";
  source.target = "sm_90a";
  source.options = {"--gpu-architecture=sm_90a",  "--no-cache", "--no-source-include",
                    "--modify-stack-limit=false", "-std=c++17", "--ptxas-options=-v"};
  source.entries = {"one"};
  return source;
}

Toolchain& toolchain() {
  static const std::unique_ptr<Toolchain> only = [] {
    NvrtcSearch search;
    if (const char* path = ::getenv("ATTNLOOM_NVRTC")) search.path = path;
    return make_nvrtc_toolchain(search);
  }();
  return *only;
}

// The kernel of this query tile, 0 for the joint one, of "tile": "auto" at head dimension 128.
Result<Source> attention_source(int query_tile) {
  ATTNLOOM_TRY(const ParsedSpec parsed, parse_spec(R"({
    "attnloom": 1, "kernel": "attention", "task": "mixed", "target": "sm_90a",
    "dtype": {"q": "bf16", "kv": "bf16", "o": "bf16"}, "head_dim": {"qk": 128, "vo": 128},
    "group_size": 4, "layout": {"kv": "paged", "page_size": 16}, "tile": "auto",
    "variant": {"name": "causal", "mask": {"causal": true}}})"));
  ATTNLOOM_TRY(const std::vector<KernelChoice> kernels, kernel_set(parsed.spec));
  for (const KernelChoice& kernel : kernels) {
    const bool joint = kernel.classes.size() > 1;
    if (query_tile == (joint ? 0 : kernel.classes[0].q)) return render(parsed.spec, kernel);
  }
  return make_error(Code::kSpecUnsupported, "$.tile",
                    "the set has no kernel of query tile " + std::to_string(query_tile));
}

benchmark::Counter average(std::size_t bytes) {
  return {static_cast<double>(bytes), benchmark::Counter::kAvgThreads};
}

void compile(benchmark::State& state) {
  const Source source = source_of(static_cast<int>(state.range(0)));
  for (auto _ : state) {
    const auto artifact = toolchain().compile(source);
    if (!artifact.ok()) return state.SkipWithError(artifact.status().to_string().c_str());
    state.counters["cubin_bytes"] = average(artifact->cubin.size());
    state.counters["ptx_bytes"] = average(artifact->ptx.size());
  }
}
BENCHMARK(compile)->Arg(1)->Arg(1000)->Unit(benchmark::kMillisecond);
BENCHMARK(compile)->Arg(1000)->Threads(2)->UseRealTime()->Unit(benchmark::kMillisecond);

// One sm_90a kernel from text to cubin. NVRTC's own cache is off by the rendered options.
void attention_d128(benchmark::State& state, int query_tile) {
  const Result<Source> source = attention_source(query_tile);
  if (!source.ok()) return state.SkipWithError(source.status().to_string().c_str());
  // Finding and loading the library is once a process, not once a kernel.
  const auto found = toolchain().fingerprint();
  if (!found.ok()) return state.SkipWithError(found.status().to_string().c_str());
  for (auto _ : state) {
    const auto artifact = toolchain().compile(*source);
    if (!artifact.ok()) return state.SkipWithError(artifact.status().to_string().c_str());
    // The engine would compile again with a smaller tile: not the kernel that ships.
    if (artifact->entries[0].spill_store_bytes > 0) return state.SkipWithError("it spills");
    state.counters["cubin_bytes"] = average(artifact->cubin.size());
    state.counters["registers"] = artifact->entries[0].registers;
  }
  state.SetLabel(std::to_string(found->cuda_major) + "." + std::to_string(found->cuda_minor));
}
#define ATTNLOOM_ATTENTION(name, query_tile)           \
  BENCHMARK_CAPTURE(attention_d128, name, query_tile)  \
      ->MeasureProcessCPUTime() /* threads of NVRTC */ \
      ->Unit(benchmark::kMillisecond)
ATTNLOOM_ATTENTION(q16, 16);
ATTNLOOM_ATTENTION(q64, 64);
ATTNLOOM_ATTENTION(q128, 128);
ATTNLOOM_ATTENTION(joint, 0);

void key(benchmark::State& state) {
  const Source source = source_of(1000);
  for (auto _ : state) benchmark::DoNotOptimize(request_key(source));
}
BENCHMARK(key)->Unit(benchmark::kMicrosecond);

}  // namespace
