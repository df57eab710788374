// SPDX-License-Identifier: Apache-2.0
// attnloom plan: the work queues of a batch, as a launch would get them. Compiles and launches
// nothing.
#include <algorithm>
#include <filesystem>
#include <iostream>

#include "plan/plan.h"
#include "runtime/backend.h"
#include "spec/check.h"
#include "tools/cli/batch_input.h"
#include "tools/cli/output.h"
#include "tools/cli/plan_compare.h"
#include "tools/cli/plan_limits.h"
#include "tools/cli/plan_svg.h"
#include "tools/cli/plan_trace.h"
#include "tools/cli/plan_view.h"
#include "tools/cli/roofline.h"
#include "tools/cli/session.h"

namespace attnloom::cli {
namespace {

struct PlanOptions {
  CommonOptions common;
  BatchOptions batch;
  PlanLimitOptions limits;
  std::string svg;
  bool compare = false;
  bool roofline = false;
  TraceSteps steps;
};

// A batch, its plan, and the device that it is planned for.
struct Planned {
  CaseFile file;
  std::vector<KernelChoice> choices;
  Plan plan;
  std::string device;  // of find_roofs
};

void print_text(const KernelChoice& kernel, const Json& plan) {
  const Json& figures = plan["figures"];
  std::cout << kernel_text(kernel) << ", " << plan["grid"] << " CTAs\n"
            << figures["items"] << " items, " << figures["split_tiles"]
            << " split tiles, chunks of " << figures["chunk_tokens"]
            << " tokens before rounding, block of " << plan["block_bytes"] << " bytes\n"
            << "cost: longest queue " << figures["makespan"] << ", mean " << figures["ideal"]
            << '\n';
  for (const Json& request : plan["requests"]) {
    if (!request.contains("shared")) continue;
    std::cout << "prefix tile, level " << request["shared"]["level"] << ": pages of r"
              << request["batch"] << ", tokens " << request["shared"]["kv"][0] << " to "
              << request["shared"]["kv"][1] << ", for";
    for (const Json& member : request["shared"]["members"]) std::cout << " r" << member;
    std::cout << '\n';
  }
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

Result<Planned> make(const PlanOptions& options) {
  Planned planned;
  CaseFile& file = planned.file;
  ATTNLOOM_TRY(file, load_batch_lengths(options.batch, options.common.seed));
  planned.device = options.common.profile.empty() ? "h200" : options.common.profile;
  PlanLimits limits;
  limits.max_batch = std::max(1, file.batch());
  limits.max_qo_tokens = std::max<std::int64_t>(1, file.qo_tokens());
  limits.q_heads = file.q_heads;
  limits.kv_heads = file.kv_heads;
  options.limits.apply(limits);
  limits.share_prefixes = !options.batch.no_shared_prefix;
  if (limits.sm_count == 0) {
    ATTNLOOM_TRY(const std::unique_ptr<Engine> engine,
                 open_engine(options.common, device_kind(options.common)));
    ATTNLOOM_TRY(const Backend* device, engine->backend());
    limits.sm_count = device->device().sm_count;
    if (!device->device().simulated) planned.device = device->device().name;
    if (!file.spec.target) file.spec.target = device->device().target;
  }
  ATTNLOOM_CHECK(settle_target(options.common, "", file.spec));
  ATTNLOOM_CHECK(check_spec(file.spec));
  ATTNLOOM_TRY(planned.choices, kernel_set(file.spec));
  ATTNLOOM_TRY(planned.plan, make_plan(file.spec, planned.choices, limits, file.workload(), 1));
  return planned;
}

Status draw(const PlanOptions& options, const Planned& planned, const PlanView& view) {
  const BatchOptions& batch = options.batch;
  const std::string& source = batch.case_path.empty() ? batch.trace : batch.case_path;
  const std::string title = std::filesystem::path(source).filename().string() + ", " +
                            kernel_text(planned.choices[planned.plan.kernel]);
  return write_output(options.svg, draw_plan(view, title));
}

Result<int> show_roofline(const PlanOptions& options, const Planned& planned,
                          const PlanView& view) {
  const std::optional<Roofs> roofs = find_roofs(planned.device);
  if (!roofs) {
    return make_error(Code::kArgumentInvalid, "--roofline",
                      "no figures are known of " + planned.device,
                      "--device sim stands for an H200, with --profile a100 for an A100");
  }
  const Roofline roofline = make_roofline(planned.file, view);
  if (options.common.json)
    print_json(roofline_to_json(planned.file, roofline, *roofs));
  else
    std::cout << roofline_to_text(planned.file, roofline, *roofs);
  return kAgrees;
}

// The figures are of an H200's profile, so its SMs and its tiles are what is meant without
// --sm-count and --target.
Result<int> measure(const PlanOptions& options) {
  PlanLimits limits;
  options.limits.apply(limits);
  if (limits.sm_count == 0) limits.sm_count = 132;
  ATTNLOOM_TRY(const Json figures,
               measure_trace(options.batch, limits, options.steps, options.common.seed));
  if (options.common.json || options.steps.dump >= 0) {
    print_json(figures);
    return kAgrees;
  }
  for (const auto& [name, value] : figures.items()) std::cout << name << ": " << value << '\n';
  return kAgrees;
}

Result<int> run(const PlanOptions& options) {
  if (options.steps.steps > 0) return measure(options);
  ATTNLOOM_TRY(const Planned planned, make(options));
  const Spec& spec = planned.file.spec;
  const CostModel cost;
  const Json json = plan_to_json(spec, planned.choices, planned.plan);
  const PlanView view = view_plan(spec, json, cost);
  if (!options.svg.empty()) ATTNLOOM_CHECK(draw(options, planned, view));
  if (options.roofline) return show_roofline(options, planned, view);
  if (options.compare) {
    const std::vector<ScheduleSummary> schedules = compare_schedules(spec, view, cost);
    if (options.common.json)
      print_json(comparison_to_json(schedules, view.queues.size()));
    else
      std::cout << comparison_to_text(schedules, view.queues.size());
    return kAgrees;
  }
  if (options.common.json)
    print_json(json);
  else
    print_text(planned.choices[planned.plan.kernel], json);
  return kAgrees;
}

}  // namespace

void add_plan(CLI::App& program, Invocation& invocation) {
  auto options = std::make_shared<PlanOptions>();
  CLI::App& command = add_command<PlanOptions>(program, invocation, "plan",
                                               "print the work queues of a batch", options, run);
  add_batch_options(command, options->batch, true);
  CLI::Option* steps =
      command
          .add_option("--steps", options->steps.steps,
                      "measure the schedules of that many batches of --trace, drawn by --seed")
          ->check(whole_number(1, 1000000))
          ->needs("--trace");
  command.add_option("--dump", options->steps.dump, "print the items of one of the steps instead")
      ->check(whole_number(0, 999999))
      ->needs(steps);
  command
      .add_option("--device-profile", options->steps.profile,
                  "judge by this file of `attnloom calibrate` (default: an H200's)")
      ->check(not_empty())
      ->needs(steps);
  add_plan_limits(command, options->limits);
  command.add_option("--svg", options->svg, "also draw the queues into this file")
      ->check(not_empty());
  CLI::Option* compare = command.add_flag(
      "--compare", options->compare, "show the plan beside Algorithm 1 and FlashInfer's chunking");
  command
      .add_flag("--roofline", options->roofline,
                "show arithmetic, bytes and what bounds the time, instead of the queues")
      ->excludes(compare);
  add_device_options(command, options->common);
}

}  // namespace attnloom::cli
