// SPDX-License-Identifier: Apache-2.0
// attnloom compile: every kernel of a spec into the cache, and one cubin into a file. Uses no
// device.
#include <iostream>

#include "base/sha256.h"
#include "engine/kernel_set.h"
#include "tools/cli/output.h"
#include "tools/cli/session.h"

namespace attnloom::cli {
namespace {

struct CompileOptions {
  CommonOptions common;
  std::string spec;
  std::string target;
  std::string output;
  int kernel = 0;
};

Json row_json(const AcquiredKernel& kernel) {
  const Artifact& artifact = *kernel.artifact;
  const EntryFigures& figures = kernel.figures;
  return {{"family", kernel.choice.family},
          {"classes", classes_json(kernel.choice)},
          {"request_key", kernel.request_key},
          {"key", kernel.kernel_key},
          {"source", origin_name(kernel.origin)},
          {"target", kernel.target},
          {"bytes", artifact.cubin.size()},
          {"sha256", to_hex(sha256(artifact.cubin))},
          {"registers", figures.registers},
          {"spills", figures.spill_store_bytes + figures.spill_load_bytes},
          {"nvrtc", std::to_string(artifact.fingerprint.cuda_major) + "." +
                        std::to_string(artifact.fingerprint.cuda_minor)},
          {"fingerprint", artifact.fingerprint.hex}};
}

void print_row(const Json& row, const KernelChoice& choice) {
  std::cout << kernel_text(choice) << ": " << row["source"].get<std::string>() << ", "
            << row["target"].get<std::string>() << ", " << row["bytes"] << " bytes, "
            << row["registers"] << " registers, " << row["spills"] << " spilled bytes, NVRTC "
            << row["nvrtc"].get<std::string>() << "\n  request_key "
            << row["request_key"].get<std::string>() << '\n';
}

Result<int> run(const CompileOptions& options) {
  ATTNLOOM_TRY(ParsedSpec parsed, load_spec(options.spec));
  ATTNLOOM_CHECK(settle_target(options.common, options.target, parsed.spec));
  ATTNLOOM_TRY(const std::unique_ptr<Engine> engine,
               open_engine(options.common, DeviceKind::kNone));
  ATTNLOOM_TRY(const std::shared_ptr<KernelSet> set, engine->open(parsed));
  if (options.kernel < 0 || options.kernel >= set->size()) {
    return make_error(Code::kArgumentInvalid, "--kernel",
                      "wanted 0 to " + std::to_string(set->size() - 1) + ", given " +
                          std::to_string(options.kernel));
  }
  Json rows = Json::array();
  for (int i = 0; i < set->size(); ++i) {
    ATTNLOOM_TRY(const AcquiredKernel* kernel, set->acquire(i));
    rows.push_back(row_json(*kernel));
    if (!options.common.json) print_row(rows.back(), kernel->choice);
  }
  if (!options.output.empty()) {
    ATTNLOOM_CHECK(write_output(options.output, set->acquired(options.kernel)->artifact->cubin));
  }
  if (options.common.json) {
    Json result = rows[static_cast<std::size_t>(options.kernel)];
    result["kernels"] = std::move(rows);
    print_json(result);
  }
  return kAgrees;
}

}  // namespace

void add_compile(CLI::App& program, Invocation& invocation) {
  auto options = std::make_shared<CompileOptions>();
  CLI::App& command = add_command<CompileOptions>(
      program, invocation, "compile", "compile the kernels of a spec into the cache", options, run);
  command.add_option("SPEC", options->spec, "spec or case file")->required();
  command.add_option("--target", options->target, "sm_NN[a|f], in place of the spec's")
      ->check(not_empty());
  command.add_option("-o,--output", options->output, "write the cubin of --kernel to this file")
      ->check(not_empty());
  command.add_option("--kernel", options->kernel, "index in the spec's set of kernels")
      ->check(whole_number(0, 1000))
      ->capture_default_str();
  add_device_options(command, options->common);
  add_compile_options(command, options->common);
}

}  // namespace attnloom::cli
