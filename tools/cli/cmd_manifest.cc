// SPDX-License-Identifier: Apache-2.0
// attnloom manifest: access logs as a manifest for prewarm.
#include <iostream>

#include "engine/manifest_log.h"
#include "tools/cli/output.h"
#include "tools/cli/session.h"

namespace attnloom::cli {
namespace {

struct ManifestOptions {
  CommonOptions common;
  std::string action;
  std::vector<std::string> files;
  std::string output;
};

Result<int> run(const ManifestOptions& options) {
  ATTNLOOM_TRY(const LogManifest made, read_access_logs(options.files));
  const std::string text = made.manifest.dump(1) + "\n";
  if (options.output.empty()) {
    std::cout << text;
    return kAgrees;
  }
  ATTNLOOM_CHECK(write_output(options.output, text));
  if (options.common.json)
    print_json({{"manifest", options.output}, {"lines", made.lines}, {"skipped", made.skipped}});
  else
    std::cout << made.manifest["specs"].size() << " specs of " << made.lines << " lines in "
              << options.output << '\n';
  return kAgrees;
}

}  // namespace

Result<LogManifest> read_access_logs(const std::vector<std::string>& files) {
  std::vector<std::string> texts;
  for (const std::string& file : files) {
    ATTNLOOM_TRY(std::string text, read_input(file));
    texts.push_back(std::move(text));
  }
  ATTNLOOM_TRY(LogManifest made, manifest_from_logs(texts));
  if (made.skipped > 0)
    std::cerr << "attnloom: " << made.skipped << " lines that are none of an access log\n";
  return made;
}

void add_manifest(CLI::App& program, Invocation& invocation) {
  auto options = std::make_shared<ManifestOptions>();
  CLI::App& command = add_command<ManifestOptions>(
      program, invocation, "manifest", "make a manifest for prewarm of access logs", options, run);
  command.add_option("ACTION", options->action, "from-log")
      ->required()
      ->check(CLI::IsMember({"from-log"}));
  command.add_option("FILE", options->files, "access logs (ATTNLOOM_ACCESS_LOG)")->required();
  command.add_option("-o,--output", options->output, "write the manifest to this file")
      ->check(not_empty());
}

}  // namespace attnloom::cli
