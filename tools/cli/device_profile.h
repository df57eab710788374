// SPDX-License-Identifier: Apache-2.0
// A device's profile as a JSON file: what `attnloom calibrate` writes and `plan --device-profile`
// reads. Stateless; thread-safe.
#pragma once

#include <string>

#include "base/json.h"
#include "base/status.h"
#include "plan/cost_model.h"

namespace attnloom::cli {

struct NamedProfile {
  std::string device = "h200";
  DeviceProfile profile = kH200Profile;
};

// {"device": NAME, "profile": {figure: number, ...}}
Json profile_to_json(const DeviceProfile& profile, const std::string& device);
// Errors: ARGUMENT_INVALID with the figure: missing, or no number that is finite and at least 0.
Result<NamedProfile> read_profile(const std::string& path);

}  // namespace attnloom::cli
