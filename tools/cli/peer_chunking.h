// SPDX-License-Identifier: Apache-2.0
// A model of how FlashInfer's prefill wrapper cuts a batch (0.6; PrefillPlan), written from a
// description of it, to stand beside our plans: one query tile and one chunk length for the whole
// batch, and no split once the query tiles of all KV heads fill the CTAs. It shares no prefix: each
// request reads all of its keys. For comparison only; nothing is launched by it. Pure; thread-safe.
#pragma once

#include "plan/plan.h"
#include "tools/cli/plan_compare.h"
#include "tools/cli/plan_view.h"

namespace attnloom::cli {

// On as many CTAs as `plan` has.
ScheduleSummary peer_chunking(const Spec& spec, const PlanView& plan, const CostModel& cost);

}  // namespace attnloom::cli
