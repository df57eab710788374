// SPDX-License-Identifier: Apache-2.0
// Time of make_plan() for the shapes of a serving step on an H200's 132 SMs: what a step of an
// engine waits for on the CPU. 32 query and 8 KV heads, head dim 128, pages of 16.
#include <benchmark/benchmark.h>

#include <cstdlib>

#include "plan/plan.h"

namespace attnloom {
namespace {

struct Shape {
  int batch;
  int qo_len;
  int kv_len;
  int shared_pages = -1;  // of all requests, with a host mirror; -1: no mirror
  bool varied = false;
};

Spec spec_of(const Shape& shape) {
  Spec spec;
  spec.target = {90, 'a'};
  spec.task = shape.qo_len == 1 ? Task::kDecode : Task::kPrefill;
  spec.head_dim = {128, 128};
  spec.group_size = 4;
  spec.layout.kv = KvLayout::kPaged;
  spec.layout.page_size = 16;
  spec.variant.mask.causal = true;
  return spec;
}

void plan(benchmark::State& state, Shape shape) {
  const Spec spec = spec_of(shape);
  const Result<std::vector<KernelChoice>> kernels = kernel_set(spec);
  if (!kernels.ok()) return state.SkipWithError(kernels.status().to_string().c_str());
  std::vector<std::int32_t> qo_indptr{0};
  std::vector<std::int32_t> kv_indptr{0};
  std::vector<std::int32_t> last_page_len;
  for (int r = 0; r < shape.batch; ++r) {
    // Lengths from half to one and a half of the mean: unequal ones have all to be sorted.
    const int spread = shape.varied ? r * 7919 % shape.kv_len - shape.kv_len / 2 : 0;
    const int kv_len = shape.kv_len + spread;
    const int pages = (kv_len + 15) / 16;
    qo_indptr.push_back(qo_indptr.back() + shape.qo_len);
    kv_indptr.push_back(kv_indptr.back() + pages);
    last_page_len.push_back(kv_len - (pages - 1) * 16);
  }
  Workload workload;
  workload.q_heads = 32;
  workload.kv_heads = 8;
  workload.qo_indptr = qo_indptr;
  workload.kv_indptr = kv_indptr;
  workload.last_page_len = last_page_len;
  std::vector<std::int32_t> pages;
  for (int r = 0; r < shape.batch; ++r) {
    for (int p = 0; p < (shape.kv_len + 15) / 16; ++p)
      pages.push_back(p < shape.shared_pages ? p : static_cast<int>(pages.size()) + shape.kv_len);
  }
  if (shape.shared_pages >= 0) workload.page_indices = pages;
  workload.pool_pages = std::int64_t{1} << 30;
  PlanLimits limits{shape.batch, qo_indptr.back(), 32, 8, 132};
  limits.share_prefixes = shape.shared_pages >= 0;
  std::vector<std::byte> storage;  // of the step before, as a plan object keeps it
  PlanScratch scratch;
  for (auto _ : state) {
    Result<Plan> made =
        make_plan(spec, *kernels, limits, workload, 1, {}, std::move(storage), &scratch);
    if (!made.ok()) return state.SkipWithError(made.status().to_string().c_str());
    benchmark::DoNotOptimize(made->block.data());
    storage = std::move(made->block);
    state.counters["items"] = made->figures.items;
    state.counters["contiguous"] = made->figures.contiguous;
  }
}

BENCHMARK_CAPTURE(plan, prefill_4x4096, Shape{4, 4096, 4096})->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(plan, prefill_1x16384, Shape{1, 16384, 16384})->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(plan, prefill_16x1024, Shape{16, 1024, 1024})->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(plan, decode_64x4096, Shape{64, 1, 4096})->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(plan, decode_1024x1024, Shape{1024, 1, 1024})->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(plan, decode_8192x1024, Shape{8192, 1, 1024})->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(plan, decode_256x1024, Shape{256, 1, 1024})->Unit(benchmark::kMicrosecond);
// The same with a host mirror of 16384 page indices, checked and searched: nothing is shared, and
// half of each row is.
BENCHMARK_CAPTURE(plan, mirror_256x1024, Shape{256, 1, 1024, 0})->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(plan, shared_256x1024, Shape{256, 1, 1024, 32})->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(plan, decode_64x1024_varied, Shape{64, 1, 1024, -1, true})
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(plan, decode_256x1024_varied, Shape{256, 1, 1024, -1, true})
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(plan, decode_1024x1024_varied, Shape{1024, 1, 1024, -1, true})
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(plan, decode_8192x1024_varied, Shape{8192, 1, 1024, -1, true})
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace attnloom
