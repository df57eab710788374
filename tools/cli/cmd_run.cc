// SPDX-License-Identifier: Apache-2.0
// attnloom run: a case on a device, judged by the float64 reference and by the case's own "expect".
#include <filesystem>
#include <iostream>

#include "tools/case/judge.h"
#include "tools/case/npy.h"
#include "tools/cli/batch_input.h"
#include "tools/cli/output.h"
#include "tools/cli/plan_limits.h"
#include "tools/cli/session.h"
#include "tools/runner/case_runner.h"
#include "tools/runner/own_functors.h"

namespace attnloom::cli {
namespace {

struct RunCommandOptions {
  CommonOptions common;
  BatchOptions batch;
  PlanLimitOptions limits;
  std::string out;
};

struct Verdict {
  std::optional<reference::Comparison> reference;
  std::optional<reference::Comparison> expect;
  std::string judge;                  // which reference, or why there is none
  std::optional<sim::Finding> fault;  // of a functor, seen while making the reference

  bool pass() const {
    return !fault && (!reference || reference->pass) && (!expect || expect->pass);
  }
};

// Without a twin and without a compiler to make a reference of the functors, what the case expects
// must do.
Result<Verdict> judge(const CommonOptions& options, const CaseFile& file,
                      const reference::Output& got) {
  Verdict verdict;
  verdict.expect = compare_with_expect(file, got);
  ATTNLOOM_TRY(const std::unique_ptr<Toolchain> toolchain, open_toolchain(options));
  bool own_functors = false;
  const Result<CaseReference> wanted = solve_by_any(*toolchain, file, own_functors);
  if (wanted.ok()) {
    verdict.reference = compare_with_reference(file, wanted.value(), got);
    verdict.judge = own_functors ? "own functors" : "float64";
    return verdict;
  }
  if (own_functors && wanted.status().code == Code::kLaunch) {
    verdict.fault = sim::Finding{.kind = "functor-fault",
                                 .kernel = "functors",
                                 .place = wanted.status().path,
                                 .detail = wanted.status().cause,
                                 .count = 1};
    verdict.judge = "none: " + wanted.status().cause;
    return verdict;
  }
  if (!own_functors || !verdict.expect) return wanted.status();
  verdict.judge = "none: " + wanted.status().cause;
  return verdict;
}

Json worst_json(const reference::Worst& worst) {
  if (worst.token < 0) return nullptr;
  return {{"token", worst.token},
          {"head", worst.head},
          {"dim", worst.dim},
          {"error", json_number(worst.error)},
          {"allowed", json_number(worst.allowed)}};
}

Json comparison_json(const std::optional<reference::Comparison>& comparison) {
  if (!comparison) return nullptr;
  return {{"pass", comparison->pass},
          {"tensor_error", json_number(comparison->tensor_error)},
          {"o", worst_json(comparison->o)},
          {"lse", worst_json(comparison->lse)},
          {"failure", comparison->failure}};
}

Json counters_json(const sim::Counters& counters) {
  return {{"instructions", counters.instructions},
          {"mma", counters.mma},
          {"global_load_bytes", counters.global_load_bytes},
          {"global_load_sectors", counters.global_load_sectors},
          {"global_fetch_sectors", counters.global_fetch_sectors},
          {"global_store_bytes", counters.global_store_bytes},
          {"global_store_sectors", counters.global_store_sectors},
          {"shared_wavefronts", counters.shared_wavefronts},
          {"shared_conflicts", counters.shared_conflicts},
          {"ldmatrix_conflicts", counters.ldmatrix_conflicts},
          {"copy_conflicts", counters.copy_conflicts},
          {"barriers", counters.barriers},
          {"atomics", counters.atomics},
          {"spill_bytes", counters.spill_bytes}};
}

Json findings_json(const std::vector<sim::Finding>& findings) {
  Json list = Json::array();
  for (const sim::Finding& finding : findings) {
    list.push_back({{"kind", finding.kind},
                    {"kernel", finding.kernel},
                    {"place", finding.place},
                    {"detail", finding.detail},
                    {"count", finding.count}});
  }
  return list;
}

Json kernel_json(const AcquiredKernel& kernel) {
  return {{"request_key", kernel.request_key},    {"key", kernel.kernel_key},
          {"source", origin_name(kernel.origin)}, {"target", kernel.target},
          {"family", kernel.choice.family},       {"classes", classes_json(kernel.choice)}};
}

Json run_json(const CaseFile& file, const DeviceInfo& device, const CaseRun& run,
              const Verdict& verdict) {
  const std::int64_t shape[] = {file.qo_tokens(), file.q_heads, file.spec.head_dim.vo};
  const bool has_lse = file.spec.variant.softmax;
  Json error = {{"reference", nullptr}, {"expect", nullptr}};
  if (verdict.reference) error["reference"] = json_number(verdict.reference->tensor_error);
  if (verdict.expect)
    error["expect"] = json_number(std::max(verdict.expect->o.error, verdict.expect->lse.error));
  return {{"device", device.name},
          {"o", nested_list(run.output.o, shape)},
          {"lse", has_lse ? nested_list(run.output.lse, std::span(shape).first(2)) : Json()},
          {"reference", verdict.judge},
          {"error", std::move(error)},
          {"comparison",
           {{"reference", comparison_json(verdict.reference)},
            {"expect", comparison_json(verdict.expect)}}},
          {"plan",
           {{"grid", run.grid},
            {"items", run.figures.items},
            {"split_tiles", run.figures.split_tiles}}},
          {"findings", findings_json(run.report.findings)},
          {"counters", device.simulated ? counters_json(run.report.counters) : Json::object()},
          {"kernels", Json::array({kernel_json(*run.kernels->acquired(run.kernel))})}};
}

void print_text(const DeviceInfo& device, const CaseRun& run, const Verdict& verdict, bool pass) {
  std::cout << (pass ? "agrees" : "DIFFERS") << ": "
            << kernel_text(run.kernels->acquired(run.kernel)->choice) << " on " << device.name
            << "\n  reference: " << verdict.judge;
  if (verdict.reference) std::cout << ", difference " << verdict.reference->tensor_error;
  std::cout << '\n';
  for (const auto& comparison : {verdict.reference, verdict.expect}) {
    if (comparison && !comparison->pass) std::cout << "  " << comparison->failure << '\n';
  }
  for (const sim::Finding& finding : run.report.findings) {
    std::cout << "  " << finding.kind << " at " << finding.place << " (" << finding.count
              << "): " << finding.detail << '\n';
  }
}

Status write_arrays(const std::string& folder, const CaseFile& file,
                    const reference::Output& output) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  const std::int64_t shape[] = {file.qo_tokens(), file.q_heads, file.spec.head_dim.vo};
  ATTNLOOM_CHECK(write_npy_f32(folder + "/o.npy", shape, output.o));
  if (!file.spec.variant.softmax) return ok_status();
  return write_npy_f32(folder + "/lse.npy", std::span(shape).first(2), output.lse);
}

Result<int> run(const RunCommandOptions& options) {
  ATTNLOOM_TRY(const CaseFile file, load_batch(options.batch, options.common.seed));
  ATTNLOOM_TRY(const std::unique_ptr<Engine> engine,
               open_engine(options.common, device_kind(options.common)));
  RunOptions how;
  options.limits.apply(how.limits);
  how.limits.share_prefixes = !options.batch.no_shared_prefix;
  Result<CaseRun> ran = run_case(*engine, file, how);
  if (!ran.ok()) return named_after_variant(ran.status(), file);
  CaseRun& run = ran.value();
  ATTNLOOM_TRY(const Backend* backend, engine->backend());
  if (!options.out.empty()) ATTNLOOM_CHECK(write_arrays(options.out, file, run.output));
  ATTNLOOM_TRY(const Verdict verdict, judge(options.common, file, run.output));
  if (verdict.fault) run.report.findings.push_back(*verdict.fault);
  const bool pass = verdict.pass() && run.report.findings.empty();
  if (options.common.json)
    print_json(run_json(file, backend->device(), run, verdict));
  else
    print_text(backend->device(), run, verdict, pass);
  return pass ? kAgrees : kDiffers;
}

}  // namespace

void add_run(CLI::App& program, Invocation& invocation) {
  auto options = std::make_shared<RunCommandOptions>();
  CLI::App& command = add_command<RunCommandOptions>(
      program, invocation, "run", "run a batch and compare it with the reference", options, run);
  add_batch_options(command, options->batch);
  command.add_option("--out", options->out, "write o.npy and lse.npy into this folder")
      ->check(not_empty());
  add_plan_limits(command, options->limits);
  add_device_options(command, options->common);
  add_compile_options(command, options->common);
}

}  // namespace attnloom::cli
