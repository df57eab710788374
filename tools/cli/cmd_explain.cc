// SPDX-License-Identifier: Apache-2.0
// attnloom explain: which layer has each kernel of a spec, or why none has it. Compiles nothing.
#include <iostream>

#include "engine/explain.h"
#include "tools/cli/output.h"
#include "tools/cli/session.h"

namespace attnloom::cli {
namespace {

struct ExplainOptions {
  CommonOptions common;
  std::string spec;
  std::string target;
  std::string least_driver;
};

Json nearest_json(const NearestEntry& nearest) {
  const CatalogEntry& entry = nearest.entry;
  Json differences = Json::array();
  for (const Difference& difference : nearest.differences)
    differences.push_back({{"field", difference.field},
                           {"wanted", difference.wanted},
                           {"found", difference.found},
                           {"remedy", difference.remedy}});
  return {{"place", entry.place},
          {"request_key", entry.request_key},
          {"target", entry.target},
          {"entries", entry.names},
          {"nvrtc", std::to_string(entry.compiler.cuda_major) + "." +
                        std::to_string(entry.compiler.cuda_minor)},
          {"fingerprint", entry.compiler.hex},
          {"differs", std::move(differences)}};
}

Json kernel_json(const ExplainedKernel& kernel) {
  Json json = {{"family", kernel.choice.family},
               {"classes", classes_json(kernel.choice)},
               {"request_key", kernel.request_key},
               {"source", nullptr},
               {"key", nullptr},
               {"target", nullptr},
               {"stepped_down", Json::array()},
               {"nearest", nullptr}};
  if (kernel.nearest) json["nearest"] = nearest_json(*kernel.nearest);
  if (!kernel.found.ok()) return json;
  json["source"] = origin_name(kernel.found->origin);
  json["key"] = kernel.found->kernel_key;
  json["target"] = kernel.found->target;
  for (const SteppedDown& step : kernel.found->stepped_down)
    json["stepped_down"].push_back(
        {{"classes", classes_json(step.choice)}, {"request_key", step.request_key}});
  return json;
}

void print_kernel(const ExplainedKernel& kernel) {
  std::cout << kernel_text(kernel.choice) << ": ";
  if (kernel.found.ok()) {
    std::cout << origin_name(kernel.found->origin) << ", " << kernel.found->target
              << "\n  request_key " << kernel.request_key << '\n';
    return;
  }
  std::cout << "missing\n  request_key " << kernel.request_key << '\n';
  if (!kernel.nearest) {
    std::cout << "  no layer holds any entry: prewarm this spec\n";
    return;
  }
  const CatalogEntry& entry = kernel.nearest->entry;
  std::cout << "  nearest: " << entry.request_key << " for " << entry.target << ", NVRTC "
            << entry.compiler.cuda_major << '.' << entry.compiler.cuda_minor << ", in "
            << entry.place << '\n';
  for (const Difference& difference : kernel.nearest->differences)
    std::cout << "    " << difference.field << ": wanted " << difference.wanted << ", it has "
              << difference.found << " (" << difference.remedy << ")\n";
}

Result<int> run(const ExplainOptions& given) {
  ExplainOptions options = given;
  ATTNLOOM_TRY(options.common.least_driver, parse_driver(options.least_driver));
  ATTNLOOM_TRY(ParsedSpec parsed, load_spec(options.spec));
  if (!options.target.empty())
    ATTNLOOM_CHECK(settle_target(options.common, options.target, parsed.spec));
  // Without a target this device's own counts, and its fallbacks, as when the spec is run.
  const bool needs_device = !parsed.spec.target || options.common.device != "auto";
  const DeviceKind device = needs_device ? device_kind(options.common) : DeviceKind::kNone;
  ATTNLOOM_TRY(const std::unique_ptr<Engine> engine, open_engine(options.common, device));
  // A look-up heeds what the device can load once that is known.
  if (needs_device) ATTNLOOM_CHECK(engine->backend().status());
  ATTNLOOM_TRY(const std::shared_ptr<KernelSet> set, engine->open(parsed));
  const std::vector<ExplainedKernel> kernels = explain(*set);
  int status = kAgrees;
  Json rows = Json::array();
  for (const ExplainedKernel& kernel : kernels) {
    if (!kernel.found.ok() && kernel.found.status().code != Code::kNotCached)
      return kernel.found.status();
    if (!kernel.found.ok()) status = kDiffers;
    rows.push_back(kernel_json(kernel));
    if (!options.common.json) print_kernel(kernel);
  }
  if (options.common.json)
    print_json({{"target", set->spec().target->name()}, {"kernels", std::move(rows)}});
  return status;
}

}  // namespace

void add_explain(CLI::App& program, Invocation& invocation) {
  auto options = std::make_shared<ExplainOptions>();
  CLI::App& command = add_command<ExplainOptions>(
      program, invocation, "explain",
      "say which cache layer has each kernel of a spec, or why none has it", options, run);
  command.add_option("SPEC", options->spec, "spec or case file")->required();
  command.add_option("--target", options->target, "sm_NN[a|f], in place of the spec's")
      ->check(not_empty());
  command
      .add_option("--driver-min", options->least_driver,
                  "CUDA version of the driver that is to load the kernels, such as 12.8")
      ->check(not_empty());
  add_device_options(command, options->common);
}

}  // namespace attnloom::cli
