// SPDX-License-Identifier: Apache-2.0
// How fast the simulated device executes one of our kernels: warp instructions a second of CPU time
// of the launching thread, with its checks and without. The kernel comes the way of any user's:
// render, compile, plan, run. A run with a finding or an output that the float64 reference refuses
// is an error, not a figure. bench/record.py runs it; docs/BENCHMARKS.md tells what the figures
// mean.
#include <benchmark/benchmark.h>
#include <time.h>

#include <memory>
#include <string>

#include "engine/environment.h"
#include "engine/settings.h"
#include "runtime/sim_backend.h"
#include "sim/lanes/form.h"
#include "tools/case/judge.h"
#include "tools/runner/case_runner.h"

namespace {

using namespace attnloom;  // NOLINT: a program of one file

// Causal prefill that fills the device: 256 query tiles on 264 CTAs, none of them split.
constexpr char kPrefill[] = R"({
  "case": 1,
  "spec": {"attnloom": 1, "kernel": "attention", "task": "prefill",
           "dtype": {"q": "bf16", "kv": "bf16", "o": "bf16"}, "head_dim": {"qk": 128, "vo": 128},
           "group_size": 1, "layout": {"kv": "ragged"}, "tile": "auto",
           "variant": {"name": "causal", "mask": {"causal": true}}},
  "workload": {"heads": {"q": 64, "kv": 64}, "qo_len": [512], "kv_len": [512]},
  "inputs": {"q": {"random": "normal", "seed": 1}, "k": {"random": "normal", "seed": 2},
             "v": {"random": "normal", "seed": 3}}})";

// 32 query tiles for 264 CTAs: every tile is split eight ways, its partial states go through global
// memory and the last arriver merges them.
constexpr char kSplit[] = R"({
  "case": 1,
  "spec": {"attnloom": 1, "kernel": "attention", "task": "prefill",
           "dtype": {"q": "bf16", "kv": "bf16", "o": "bf16"}, "head_dim": {"qk": 128, "vo": 128},
           "group_size": 1, "layout": {"kv": "ragged"}, "tile": "auto",
           "variant": {"name": "causal", "mask": {"causal": true}}},
  "workload": {"heads": {"q": 4, "kv": 4}, "qo_len": [1024], "kv_len": [1024]},
  "inputs": {"q": {"random": "normal", "seed": 1}, "k": {"random": "normal", "seed": 2},
             "v": {"random": "normal", "seed": 3}}})";

double thread_seconds() {
  timespec now;
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Adds up the time of launches alone: copies, plans and loads are no instructions. The simulator
// launches on the calling thread.
class TimedSimBackend : public SimBackend {
 public:
  TimedSimBackend(const sim::Options& options, double& seconds)
      : SimBackend(*sim::find_profile("h200"), options), seconds_(seconds) {}
  Status launch(LoadedKernel& kernel, const LaunchShape& shape, std::span<const std::byte> args,
                Stream stream) override {
    const double before = thread_seconds();
    Status status = SimBackend::launch(kernel, shape, args, stream);
    seconds_ += thread_seconds() - before;
    return status;
  }

 private:
  double& seconds_;
};

Result<std::unique_ptr<Engine>> make_timed_engine(const sim::Options& device, double& seconds) {
  std::unique_ptr<FileSystem> files = make_real_file_system();
  ATTNLOOM_TRY(const Settings settings, resolve_settings({}, read_environment(), *files));
  EngineOptions options;
  options.make_backend = [device, &seconds]() -> Result<std::unique_ptr<Backend>> {
    return std::unique_ptr<Backend>(std::make_unique<TimedSimBackend>(device, seconds));
  };
  options.toolchain = make_nvrtc_toolchain(settings.search);
  options.files = make_memory_file_system();
  return std::make_unique<Engine>(std::move(options));
}

// What is wrong with a run, or "".
std::string judge(const CaseFile& file, const CaseRun& run) {
  if (!run.report.findings.empty()) return "finding: " + run.report.findings[0].detail;
  const Result<CaseReference> wanted = solve_case(file);
  if (!wanted.ok()) return wanted.status().to_string();
  return compare_with_reference(file, *wanted, run.output).failure;
}

const char* name_of(sim::Isa isa) {
  if (isa == sim::Isa::kAvx512) return "AVX-512";
  return isa == sim::Isa::kAvx2 ? "AVX2" : "baseline";
}

void measure(benchmark::State& state, const char* text, bool checks) {
  double seconds = 0;
  const Result<CaseFile> file = parse_case(text, ".");
  if (!file.ok()) return state.SkipWithError(file.status().to_string().c_str());
  const auto engine = make_timed_engine({.checks = checks}, seconds);
  if (!engine.ok()) return state.SkipWithError(engine.status().to_string().c_str());
  const Result<CaseRun> first = run_case(**engine, *file);
  if (!first.ok()) return state.SkipWithError(first.status().to_string().c_str());
  if (const std::string fault = judge(*file, *first); !fault.empty()) {
    return state.SkipWithError(fault.c_str());
  }
  double instructions = 0;
  for (auto _ : state) {
    seconds = 0;
    const Result<CaseRun> run = run_case(**engine, *file);
    if (!run.ok()) return state.SkipWithError(run.status().to_string().c_str());
    state.SetIterationTime(seconds);
    instructions += static_cast<double>(run->report.counters.instructions);
  }
  const sim::Counters& counters = first->report.counters;
  state.counters["warp_instructions"] = static_cast<double>(counters.instructions);
  state.counters["mma"] = static_cast<double>(counters.mma);
  state.counters["warp_instructions_per_s"] = {instructions, benchmark::Counter::kIsRate};
  state.SetLabel(name_of(sim::best_isa()));
}
void prefill(benchmark::State& state, bool checks) {
  measure(state, kPrefill, checks);
}
void sim_split(benchmark::State& state, bool checks) {
  measure(state, kSplit, checks);
}
BENCHMARK_CAPTURE(prefill, checks_on, true)->UseManualTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(prefill, checks_off, false)->UseManualTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(sim_split, checks_on, true)->UseManualTime()->Unit(benchmark::kMillisecond);

}  // namespace
