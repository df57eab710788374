// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/plan_limits.h"

#include "tools/cli/session.h"

namespace attnloom::cli {

void PlanLimitOptions::apply(PlanLimits& limits) const {
  limits.sm_count = sm_count;
  limits.max_ctas = max_ctas;
  limits.batch_invariant = batch_invariant;
}

void add_plan_limits(CLI::App& command, PlanLimitOptions& options) {
  command.add_option("--sm-count", options.sm_count, "SMs to plan for (default: the device's)")
      ->check(whole_number(1, 65535));
  command
      .add_option("--max-ctas", options.max_ctas, "most CTAs of a launch (default: all resident)")
      ->check(whole_number(1, 1 << 20));
  command.add_flag("--batch-invariant", options.batch_invariant,
                   "cut each request by its own lengths only");
}

}  // namespace attnloom::cli
