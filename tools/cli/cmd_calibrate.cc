// SPDX-License-Identifier: Apache-2.0
// attnloom calibrate: the figures of the planner's cost model, measured on this machine's device.
#include <iostream>

#include "tools/cli/calibration_run.h"
#include "tools/cli/device_profile.h"
#include "tools/cli/output.h"
#include "tools/cli/session.h"

namespace attnloom::cli {
namespace {

struct CalibrateOptions {
  CommonOptions common;
  std::string output;
};

Result<int> run(const CalibrateOptions& options) {
  ATTNLOOM_TRY(const std::unique_ptr<Engine> engine,
               open_engine(options.common, device_kind(options.common)));
  ATTNLOOM_TRY(const Backend* backend, engine->backend());
  if (backend->device().simulated) {
    return make_error(Code::kNoDevice, "--device", "the simulated device keeps no time",
                      "calibrate on a machine with a GPU; kH200Profile is what is shipped");
  }
  ATTNLOOM_TRY(const auto times, time_calibration(*engine));
  ATTNLOOM_TRY(const DeviceProfile profile, fit_profile(times));
  Json json = profile_to_json(profile, backend->device().name);
  for (std::size_t n = 0; n < times.size(); ++n) {
    json["launches"].push_back({{"name", kCalibration[n].name},
                                {"ns", times[n].ns},
                                {"ctas", times[n].ctas},
                                {"items", times[n].items}});
  }
  if (!options.output.empty())
    ATTNLOOM_CHECK(write_output(options.output, json.dump(2) + "\n"));
  else
    print_json(json);
  return kAgrees;
}

}  // namespace

void add_calibrate(CLI::App& program, Invocation& invocation) {
  auto options = std::make_shared<CalibrateOptions>();
  CLI::App& command = add_command<CalibrateOptions>(
      program, invocation, "calibrate",
      "measure the figures of the planner's cost model on this device", options, run);
  command.add_option("-o,--output", options->output, "write the profile into this file")
      ->check(not_empty());
  add_device_options(command, options->common);
}

}  // namespace attnloom::cli
