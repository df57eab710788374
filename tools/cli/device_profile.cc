// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/device_profile.h"

#include <cmath>

#include "tools/cli/output.h"

namespace attnloom::cli {
namespace {

struct Figure {
  const char* name;
  double DeviceProfile::*member;
};
constexpr Figure kFigures[] = {{"bytes_per_ns", &DeviceProfile::bytes_per_ns},
                               {"flops_per_ns", &DeviceProfile::flops_per_ns},
                               {"step_ns", &DeviceProfile::step_ns},
                               {"item_ns", &DeviceProfile::item_ns},
                               {"latency_ns", &DeviceProfile::latency_ns},
                               {"cta_bytes_per_ns", &DeviceProfile::cta_bytes_per_ns},
                               {"state_ns", &DeviceProfile::state_ns},
                               {"launch_ns", &DeviceProfile::launch_ns}};

Status refusal(const std::string& path, const std::string& cause) {
  return make_error(Code::kArgumentInvalid, "--device-profile", path + ": " + cause,
                    "give a file that `attnloom calibrate -o` wrote");
}

bool is_rate(const Figure& figure) {
  return std::string_view(figure.name).find("_per_ns") != std::string_view::npos;
}

}  // namespace

Json profile_to_json(const DeviceProfile& profile, const std::string& device) {
  Json figures = Json::object();
  for (const Figure& figure : kFigures) figures[figure.name] = profile.*figure.member;
  return {{"device", device}, {"profile", figures}};
}

Result<NamedProfile> read_profile(const std::string& path) {
  ATTNLOOM_TRY(const std::string text, read_input(path));
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("profile") || !json["profile"].is_object() ||
      !json.contains("device") || !json["device"].is_string())
    return refusal(path, "this is no profile");
  NamedProfile named{.device = json["device"]};
  for (const Figure& figure : kFigures) {
    const auto found = json["profile"].find(figure.name);
    if (found == json["profile"].end() || !found->is_number())
      return refusal(path, std::string("no number ") + figure.name);
    const double value = *found;
    if (!std::isfinite(value) || value < 0 || (is_rate(figure) && value == 0))
      return refusal(path, std::string(figure.name) + " is " + found->dump());
    named.profile.*figure.member = value;
  }
  return named;
}

}  // namespace attnloom::cli
