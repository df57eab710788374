// SPDX-License-Identifier: Apache-2.0
// The limits of a plan that `plan` and `run` let a user choose.
#pragma once

#include <CLI/CLI.hpp>

#include "plan/plan.h"

namespace attnloom::cli {

struct PlanLimitOptions {
  int sm_count = 0;  // 0: the device's
  int max_ctas = 0;
  bool batch_invariant = false;

  void apply(PlanLimits& limits) const;
};

// --sm-count, --max-ctas and --batch-invariant.
void add_plan_limits(CLI::App& command, PlanLimitOptions& options);

}  // namespace attnloom::cli
