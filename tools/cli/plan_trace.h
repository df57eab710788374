// SPDX-License-Identifier: Apache-2.0
// attnloom plan --trace FILE --steps N: how near the schedules of a trace's steps come to what
// their cost model says is reachable. Compiles and launches nothing.
#pragma once

#include <cstdint>
#include <string>

#include "base/json.h"
#include "base/status.h"
#include "plan/plan.h"
#include "tools/cli/batch_input.h"

namespace attnloom::cli {

struct TraceSteps {
  int steps = 0;        // 0: the measurement was not asked for
  int dump = -1;        // a step whose items are wanted instead
  std::string profile;  // file of `attnloom calibrate`; "": an H200's
};

// {steps, within_1_03, worst_vs_algorithm1, seconds, model}; with `dump` the items of one step,
// [request, head, q0, q1, kv0, kv1, cta, slot]: query tokens and keys from and to, the CTA and the
// item's place in its queue. Batches of 1 to 512 requests at moments drawn by `seed`.
Result<Json> measure_trace(const BatchOptions& batch, const PlanLimits& limits,
                           const TraceSteps& wanted, std::uint64_t seed);

}  // namespace attnloom::cli
