// SPDX-License-Identifier: Apache-2.0
// What the subcommands share: the common options, opening an engine, reading a spec, and the list
// of subcommands.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "compile/toolchain.h"
#include "engine/describe.h"
#include "engine/engine.h"
#include "engine/manifest_log.h"
#include "engine/setup.h"
#include "spec/parse.h"

namespace attnloom::cli {

struct CommonOptions {
  bool json = false;
  bool verbose = false;
  std::string device = "auto";
  std::string profile;
  std::uint64_t seed = 0;
  int least_driver = 0;  // of SetupOptions
  UntrustedOptions untrusted;
  int compile_seconds = 0;  // of one compile; 0: the default of SetupOptions
  SettingOptions settings;
};

// A command line as parsed.
struct Invocation {
  std::function<Result<int>()> action;  // gives the exit status
  bool json = false;                    // --json stood before the subcommand
};

// --json, --verbose and the places of cache and compiler.
void add_common_options(CLI::App& app, CommonOptions& options);
// Checks of option values; a value that fails them is a usage error.
CLI::Validator whole_number(std::uint64_t least, std::uint64_t most);
CLI::Validator not_empty();
// The value of --driver-min as SetupOptions counts, 12080 for "12.8"; 0 for "".
Result<int> parse_driver(const std::string& text);
// Two whole numbers around `between`, such as 12.8 or 0/8.
bool read_pair(const std::string& text, char between, unsigned& first, unsigned& second);
// --device, --profile and --seed.
void add_device_options(CLI::App& app, CommonOptions& options);

// --untrusted, --weak-sandbox and --compile-timeout.
void add_compile_options(CLI::App& app, CommonOptions& options);

// Each adds its subcommand to the program; `invocation` is filled in when the command line names
// it.
void add_render(CLI::App& program, Invocation& invocation);
void add_compile(CLI::App& program, Invocation& invocation);
void add_check(CLI::App& program, Invocation& invocation);
void add_plan(CLI::App& program, Invocation& invocation);
void add_run(CLI::App& program, Invocation& invocation);
void add_calibrate(CLI::App& program, Invocation& invocation);
void add_doctor(CLI::App& program, Invocation& invocation);
void add_serve(CLI::App& program, Invocation& invocation);
void add_keygen(CLI::App& program, Invocation& invocation);
void add_bundle(CLI::App& program, Invocation& invocation);
void add_cache(CLI::App& program, Invocation& invocation);
void add_inspect(CLI::App& program, Invocation& invocation);
void add_prewarm(CLI::App& program, Invocation& invocation);
void add_manifest(CLI::App& program, Invocation& invocation);
void add_explain(CLI::App& program, Invocation& invocation);

// The manifest of several access logs; how many lines were none goes to standard error.
Result<LogManifest> read_access_logs(const std::vector<std::string>& files);

// Adds a subcommand with options of type `Options` (which has `common`) and its action.
template <class Options>
CLI::App& add_command(CLI::App& program, Invocation& invocation, const std::string& name,
                      const std::string& help, std::shared_ptr<Options> options,
                      Result<int> (*action)(const Options&)) {
  CLI::App& command = *program.add_subcommand(name, help);
  add_common_options(command, options->common);
  command.callback([options, action, &invocation] {
    options->common.json |= invocation.json;  // --json before the subcommand
    invocation.action = [options, action] { return action(*options); };
  });
  return command;
}

// kNone: for commands that touch no device. Errors: those of make_engine.
Result<std::unique_ptr<Engine>> open_engine(const CommonOptions& options, DeviceKind device);
DeviceKind device_kind(const CommonOptions& options);
// The compiler that open_engine's engine would use.
Result<std::unique_ptr<Toolchain>> open_toolchain(const CommonOptions& options);
// UNTRUSTED where --untrusted was given and this machine cannot confine a compile. What else may be
// wrong with its compiler shows when it is needed.
Status check_sandbox(const CommonOptions& options);
// The key that ATTNLOOM_SIGN_KEY names, if any.
Result<std::optional<SigningKey>> open_signing_key(const CommonOptions& options);

// A spec file, or the spec of a case file.
Result<ParsedSpec> load_spec(const std::string& path);
// Fills in the target of a spec that names none: `target` if not empty, else that of the device
// --device stands for.
Status settle_target(const CommonOptions& options, const std::string& target, Spec& spec);

// "attention_mma q16 kv128 + q128 kv64"
std::string kernel_text(const KernelChoice& choice);

}  // namespace attnloom::cli
