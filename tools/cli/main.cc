// SPDX-License-Identifier: Apache-2.0
// attnloom: the table of subcommands. docs/CLI.md is its manual.
#include <CLI/CLI.hpp>
#include <cstring>
#include <exception>
#include <iostream>
#include <string>

#include "tools/cli/output.h"
#include "tools/cli/session.h"

namespace attnloom::cli {
namespace {

// Also where the command line cannot be parsed, a caller that asked for JSON gets JSON.
bool asks_for_json(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0) return true;
  }
  return false;
}

int usage_error(const std::string& cause, const std::string& command, bool json) {
  const std::string help =
      "attnloom " + (command.empty() ? "" : command + " ") + "--help lists what there is";
  print_error(make_error(Code::kArgumentInvalid, "command line", cause, help), json);
  return kUsage;
}

std::string chosen_command(const CLI::App& program) {
  const auto chosen = program.get_subcommands();
  return chosen.empty() ? "" : chosen.front()->get_name();
}

int run_program(int argc, char** argv) {
  const bool json = asks_for_json(argc, argv);
  CLI::App program("Compiles and runs attention kernels from a JSON spec.", "attnloom");
  Invocation invocation;
  bool version = false;
  program.add_flag("--version", version, "print the version");
  program.add_flag("--json", invocation.json, "print one JSON value on standard output");
  add_render(program, invocation);
  add_compile(program, invocation);
  add_check(program, invocation);
  add_plan(program, invocation);
  add_run(program, invocation);
  add_calibrate(program, invocation);
  add_doctor(program, invocation);
  add_serve(program, invocation);
  add_keygen(program, invocation);
  add_bundle(program, invocation);
  add_cache(program, invocation);
  add_inspect(program, invocation);
  add_prewarm(program, invocation);
  add_manifest(program, invocation);
  add_explain(program, invocation);
  program.require_subcommand(0, 1);
  program.footer(
      "Exit status: 0 agrees, 1 differs or a finding, 2 input refused, 3 environment, 64 usage.\n"
      "SPEC is a spec file or a case file; - reads standard input.");
  try {
    program.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::cout << program.help();
    return 0;
  } catch (const CLI::ParseError& error) {
    return usage_error(error.what(), chosen_command(program), json);
  }
  if (version) {
    if (json)
      print_json({{"version", ATTNLOOM_VERSION}});
    else
      std::cout << "attnloom " ATTNLOOM_VERSION "\n";
    return 0;
  }
  if (!invocation.action) return usage_error("a subcommand is missing", "", json);
  const Result<int> status = invocation.action();
  if (status.ok()) return status.value();
  print_error(status.status(), json);
  return exit_of(status.status());
}

}  // namespace
}  // namespace attnloom::cli

int main(int argc, char** argv) {
  using namespace attnloom;
  try {
    const int status = cli::run_program(argc, argv);
    const Status written = cli::finish_output();
    if (written.ok()) return status;
    cli::print_error(written, false);  // JSON would go the same way
    return status == cli::kAgrees ? cli::kRefused : status;
  } catch (const std::bad_alloc&) {
    cli::print_error(
        make_error(Code::kOutOfMemory, "", "the host has no memory left", "use a smaller batch"),
        cli::asks_for_json(argc, argv));
  } catch (const std::exception& error) {
    cli::print_error(
        make_error(Code::kInternal, "", error.what(), "report this with the command line"),
        cli::asks_for_json(argc, argv));
  }
  return cli::kEnvironment;
}
