// SPDX-License-Identifier: Apache-2.0
// attnloom plan: the work queues of a batch, as a launch would get them. Compiles and launches
// nothing.
#include <algorithm>
#include <cstdio>
#include <iostream>

#include "plan/plan.h"
#include "runtime/backend.h"
#include "spec/check.h"
#include "tools/cli/batch_input.h"
#include "tools/cli/output.h"
#include "tools/cli/plan_limits.h"
#include "tools/cli/session.h"

namespace attnloom::cli {
namespace {

struct Options {
  CommonOptions common;
  BatchOptions batch;
  PlanLimitOptions limits;
};

void print_text(const KernelChoice& kernel, const Json& plan) {
  const Json& figures = plan["figures"];
  std::cout << kernel_text(kernel) << ", " << plan["grid"] << " CTAs\n"
            << figures["items"] << " items, " << figures["split_tiles"]
            << " split tiles, chunks of " << figures["chunk_tokens"]
            << " tokens before rounding, block of " << plan["block_bytes"] << " bytes\n"
            << "cost: longest queue " << figures["makespan"] << ", mean " << figures["ideal"]
            << '\n';
  int cta = 0;
  for (const Json& queue : plan["queues"]) {
    if (!queue.empty()) std::cout << "CTA " << cta << ':';
    for (const Json& item : queue) {
      std::cout << " r" << item["request"] << "/row" << item["q_row"] << "/head" << item["kv_head"]
                << '[' << item["kv"][0] << ',' << item["kv"][1] << ')';
      if (item["merge"] >= 0) std::cout << "->m" << item["merge"];
    }
    if (!queue.empty()) std::cout << '\n';
    ++cta;
  }
}

Result<int> run(const Options& options) {
  ATTNLOOM_TRY(CaseFile file, load_batch_lengths(options.batch, options.common.seed));
  PlanLimits limits;
  limits.max_batch = std::max(1, file.batch());
  limits.max_qo_tokens = std::max<std::int64_t>(1, file.qo_tokens());
  limits.q_heads = file.q_heads;
  limits.kv_heads = file.kv_heads;
  options.limits.apply(limits);
  if (limits.sm_count == 0) {
    ATTNLOOM_TRY(const std::unique_ptr<Engine> engine,
                 open_engine(options.common, device_kind(options.common)));
    ATTNLOOM_TRY(const Backend* device, engine->backend());
    limits.sm_count = device->device().sm_count;
    if (!file.spec.target) file.spec.target = device->device().target;
  }
  ATTNLOOM_CHECK(settle_target(options.common, "", file.spec));
  ATTNLOOM_CHECK(check_spec(file.spec));
  ATTNLOOM_TRY(const std::vector<KernelChoice> choices, kernel_set(file.spec));
  ATTNLOOM_TRY(const Plan plan, make_plan(file.spec, choices, limits, file.workload(), 1));
  const Json json = plan_to_json(file.spec, choices, plan);
  if (options.common.json)
    print_json(json);
  else
    print_text(choices[static_cast<std::size_t>(plan.kernel)], json);
  return kAgrees;
}

}  // namespace

void add_plan(CLI::App& program, Invocation& invocation) {
  auto options = std::make_shared<Options>();
  CLI::App& command = add_command<Options>(program, invocation, "plan",
                                           "print the work queues of a batch", options, run);
  add_batch_options(command, options->batch);
  add_plan_limits(command, options->limits);
  add_device_options(command, options->common);
}

}  // namespace attnloom::cli
