// SPDX-License-Identifier: Apache-2.0
// Launches of plan/calibration.h on a real device, timed. Not thread-safe; frees what it allocates.
#pragma once

#include <array>

#include "base/status.h"
#include "engine/engine.h"
#include "plan/calibration.h"

namespace attnloom::cli {

// Each time is the least of several groups of launches, divided by their number, by the host's
// clock: what a launch takes in a row of launches. No launch finds its keys in L2. Needs 1.3 GB of
// the device's memory. Errors: those of Engine, PlanObject and Backend.
Result<std::array<CalibrationTime, kCalibration.size()>> time_calibration(Engine& engine);

}  // namespace attnloom::cli
