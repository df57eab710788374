// SPDX-License-Identifier: Apache-2.0
// Runs a case file on a device through the engine, as a user would: open, plan, launch, read back.
// The one way of the CLI, the tests and bench. Not thread-safe per engine: the simulator's report
// is taken per run.
#pragma once

#include <memory>

#include "base/status.h"
#include "engine/engine.h"
#include "engine/kernel_set.h"
#include "engine/plan_object.h"
#include "reference/attention.h"
#include "sim/device.h"
#include "tools/case/case_file.h"

namespace attnloom {

struct CaseRun {
  reference::Output output;  // what the device wrote; lse is empty without softmax
  std::shared_ptr<KernelSet> kernels;
  int kernel = 0;  // the one that the plan launched
  int grid = 0;    // CTAs of the launch
  PlanFigures figures;
  sim::Report report;  // of the simulated device; empty on a real one
};

// Of what the simulator cannot execute (LOAD_FAILED at a PTX line), the error that names the
// variant; any other as it is.
Status named_after_variant(Status status, const CaseFile& file);

struct RunOptions {
  int launches = 1;  // of the same plan; the output is the last one's
  PlanLimits limits{.share_prefixes =
                        true};  // batch, tokens and heads are filled in: the case's own
};

// Outputs and workspace are poisoned first: never-written on the simulator, 0xFF bytes (NaN) on a
// real device. Errors: those of Engine::open, PlanObject, Backend.
Result<CaseRun> run_case(Engine& engine, const CaseFile& file, const RunOptions& options = {});

}  // namespace attnloom
