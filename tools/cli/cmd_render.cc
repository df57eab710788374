// SPDX-License-Identifier: Apache-2.0
// attnloom render: the CUDA program of each kernel of a spec. Needs no compiler, cache or (with a
// target) device.
#include <iostream>

#include "cache/key.h"
#include "render/render.h"
#include "spec/check.h"
#include "tools/cli/output.h"
#include "tools/cli/session.h"

namespace attnloom::cli {
namespace {

struct RenderOptions {
  CommonOptions common;
  std::string spec;
  std::string target;
};

Json rendered_json(const KernelChoice& choice, const Source& source) {
  Json headers = Json::array();
  for (const Header& header : source.headers) headers.push_back(header.name);
  return {{"family", choice.family},   {"classes", classes_json(choice)},
          {"target", source.target},   {"entries", source.entries},
          {"options", source.options}, {"request_key", request_key(source)},
          {"text", source.text},       {"headers", std::move(headers)}};
}

Result<int> run(const RenderOptions& options) {
  ATTNLOOM_TRY(ParsedSpec parsed, load_spec(options.spec));
  ATTNLOOM_CHECK(settle_target(options.common, options.target, parsed.spec));
  ATTNLOOM_CHECK(check_spec(parsed.spec));
  ATTNLOOM_TRY(const std::vector<KernelChoice> choices, kernel_set(parsed.spec));
  Json kernels = Json::array();
  std::string text;
  for (const KernelChoice& choice : choices) {
    ATTNLOOM_TRY(const Source source, render(parsed.spec, choice));
    kernels.push_back(rendered_json(choice, source));
    text += "// " + kernel_text(choice) + ", " + source.target + ", request_key " +
            request_key(source) + "\n" + source.text + "\n";
  }
  if (options.common.json)
    print_json({{"kernels", std::move(kernels)}});
  else
    std::cout << text;
  return kAgrees;
}

}  // namespace

void add_render(CLI::App& program, Invocation& invocation) {
  auto options = std::make_shared<RenderOptions>();
  CLI::App& command = add_command<RenderOptions>(program, invocation, "render",
                                                 "print the CUDA program of a spec", options, run);
  command.add_option("SPEC", options->spec, "spec or case file")->required();
  command.add_option("--target", options->target, "sm_NN[a|f], in place of the spec's")
      ->check(not_empty());
  add_device_options(command, options->common);
}

}  // namespace attnloom::cli
