// SPDX-License-Identifier: Apache-2.0
// attnloom check: everything that can be said about a spec without running it.
#include <iostream>

#include "engine/kernel_set.h"
#include "tools/cli/output.h"
#include "tools/cli/session.h"

namespace attnloom::cli {
namespace {

struct CheckOptions {
  CommonOptions common;
  std::string spec;
  std::vector<std::string> targets;
};

Json kernel_json(const AcquiredKernel& kernel) {
  const EntryFigures& figures = kernel.figures;
  Json stepped_down = Json::array();
  for (const SteppedDown& step : kernel.stepped_down) {
    stepped_down.push_back(
        {{"classes", classes_json(step.choice)},
         {"spills", step.figures.spill_store_bytes + step.figures.spill_load_bytes}});
  }
  return {{"family", kernel.choice.family},
          {"classes", classes_json(kernel.choice)},
          {"threads", kernel.choice.threads},
          {"shared_bytes", kernel.choice.shared_bytes},
          {"ctas_per_sm", kernel.choice.min_ctas_per_sm},
          {"registers", figures.registers},
          {"spills", figures.spill_store_bytes + figures.spill_load_bytes},
          {"stepped_down", std::move(stepped_down)},
          {"request_key", kernel.request_key},
          {"source", origin_name(kernel.origin)}};
}

void print_kernel(const AcquiredKernel& kernel) {
  std::cout << "  " << kernel_text(kernel.choice) << ": " << kernel.figures.registers
            << " registers, " << kernel.figures.spill_store_bytes + kernel.figures.spill_load_bytes
            << " spilled bytes, " << kernel.choice.shared_bytes << " bytes of shared memory, "
            << kernel.choice.min_ctas_per_sm << " CTAs per SM\n";
  for (const SteppedDown& step : kernel.stepped_down) {
    std::cout << "    " << kernel_text(step.choice) << " spilled "
              << step.figures.spill_store_bytes + step.figures.spill_load_bytes << " bytes\n";
  }
}

Result<Json> check_target(const CheckOptions& options, Engine& engine, const ParsedSpec& parsed) {
  ATTNLOOM_TRY(const std::shared_ptr<KernelSet> set, engine.open(parsed));
  const std::string target = parsed.spec.target->name();
  if (!options.common.json) std::cout << target << '\n';
  Json kernels = Json::array();
  for (int i = 0; i < set->size(); ++i) {
    ATTNLOOM_TRY(const AcquiredKernel* kernel, set->acquire(i));
    kernels.push_back(kernel_json(*kernel));
    if (!options.common.json) print_kernel(*kernel);
  }
  return Json{{"target", target}, {"kernels", std::move(kernels)}};
}

Result<int> run(const CheckOptions& options) {
  ATTNLOOM_TRY(ParsedSpec parsed, load_spec(options.spec));
  ATTNLOOM_TRY(const std::unique_ptr<Engine> engine,
               open_engine(options.common, DeviceKind::kNone));
  const std::vector<std::string> targets =
      options.targets.empty() ? std::vector<std::string>{""} : options.targets;
  Json rows = Json::array();
  for (const std::string& target : targets) {
    ParsedSpec one = parsed;
    ATTNLOOM_CHECK(settle_target(options.common, target, one.spec));
    ATTNLOOM_TRY(Json row, check_target(options, *engine, one));
    rows.push_back(std::move(row));
  }
  if (options.common.json) {
    print_json({{"ok", true}, {"spec", spec_to_json(parsed.spec)}, {"targets", std::move(rows)}});
  }
  return kAgrees;
}

}  // namespace

void add_check(CLI::App& program, Invocation& invocation) {
  auto options = std::make_shared<CheckOptions>();
  CLI::App& command = add_command<CheckOptions>(
      program, invocation, "check",
      "parse, check, render and compile a spec, and report its kernels", options, run);
  command.add_option("SPEC", options->spec, "spec or case file")->required();
  command
      .add_option("--target", options->targets,
                  "sm_NN[a|f], in place of the spec's; may be repeated")
      ->check(not_empty());
  add_device_options(command, options->common);
  add_compile_options(command, options->common);
}

}  // namespace attnloom::cli
