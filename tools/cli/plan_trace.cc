// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/plan_trace.h"

#include <algorithm>
#include <chrono>
#include <random>

#include "spec/check.h"
#include "spec/tiles.h"
#include "tools/cli/device_profile.h"

namespace attnloom::cli {
namespace {

constexpr int kMostRequests = 512;
constexpr double kNear = 1.03;  // of what is reachable
// Rounding of sums in another order is no worse schedule.
constexpr double kSame = 1e-9;

Json items_of(const Spec& spec, const Json& plan) {
  const Json& classes = plan["kernel"]["classes"];
  Json items = Json::array();
  int cta = 0;
  for (const Json& queue : plan["queues"]) {
    int slot = 0;
    for (const Json& item : queue) {
      const Json& request = plan["requests"][item["request"].get<std::size_t>()];
      const int rows = classes[item["tile_class"].get<std::size_t>()]["q"];
      const int q_row = item["q_row"];
      const int end = (q_row + rows + spec.group_size - 1) / spec.group_size;
      items.push_back({request["batch"], item["kv_head"], q_row / spec.group_size,
                       std::min(end, request["q"][1].get<int>()), item["kv"][0], item["kv"][1], cta,
                       slot++});
    }
    ++cta;
  }
  return items;
}

struct Step {
  Workload workload;
  std::vector<std::int32_t> qo_indptr{0}, kv_indptr{0}, last_page_len;
};

void fill(const BatchLengths& lengths, const Spec& spec, int kv_heads, Step& step) {
  const bool paged = spec.layout.kv == KvLayout::kPaged;
  const int page = paged ? spec.layout.page_size : 1;
  for (std::size_t r = 0; r < lengths.kv_len.size(); ++r) {
    const int pages = (lengths.kv_len[r] + page - 1) / page;
    step.qo_indptr.push_back(step.qo_indptr.back() + lengths.qo_len[r]);
    step.kv_indptr.push_back(step.kv_indptr.back() + pages);
    if (paged)
      step.last_page_len.push_back(pages == 0 ? 0 : lengths.kv_len[r] - (pages - 1) * page);
  }
  step.workload.q_heads = kv_heads * spec.group_size;
  step.workload.kv_heads = kv_heads;
  step.workload.qo_indptr = step.qo_indptr;
  step.workload.kv_indptr = step.kv_indptr;
  step.workload.last_page_len = step.last_page_len;
}

struct Tally {
  int near = 0;
  double worst = 0;
};

void count(const PlanFigures& shipped, const PlanFigures& paper, Tally& tally) {
  if (shipped.makespan <= kNear * shipped.reachable * (1 + kSame)) ++tally.near;
  if (paper.makespan > 0) tally.worst = std::max(tally.worst, shipped.makespan / paper.makespan);
}

}  // namespace

Result<Json> measure_trace(const BatchOptions& batch, const PlanLimits& limits,
                           const TraceSteps& wanted, std::uint64_t seed) {
  ATTNLOOM_TRY(TraceSource source, load_trace_source(batch));
  if (!source.spec.target) source.spec.target = {90, 'a'};
  ATTNLOOM_CHECK(check_spec(source.spec));
  ATTNLOOM_TRY(const std::vector<KernelChoice> kernels, kernel_set(source.spec));
  NamedProfile device;
  if (!wanted.profile.empty()) {
    ATTNLOOM_TRY(device, read_profile(wanted.profile));
  }
  const CostModel cost{.profile = &device.profile, .judges = true};
  std::mt19937_64 random(seed);
  Tally tally;
  std::chrono::nanoseconds spent{0};
  for (int n = 0; n < wanted.steps; ++n) {
    const auto most = std::min<std::uint64_t>(kMostRequests, source.arrivals.size());
    const int requests = static_cast<int>(random() % most) + 1;
    const std::size_t end = requests + random() % (source.arrivals.size() - requests + 1);
    ATTNLOOM_TRY(const BatchLengths lengths,
                 batch_ending(source.arrivals, end, requests, source.kind, random()));
    if (wanted.dump >= 0 && wanted.dump != n) continue;
    Step step;
    fill(lengths, source.spec, batch.kv_heads, step);
    PlanLimits fitting = limits;
    fitting.max_batch = requests;
    fitting.max_qo_tokens = std::max<std::int64_t>(1, step.qo_indptr.back());
    fitting.q_heads = step.workload.q_heads;
    fitting.kv_heads = step.workload.kv_heads;
    const auto begin = std::chrono::steady_clock::now();
    ATTNLOOM_TRY(const Plan shipped,
                 make_plan(source.spec, kernels, fitting, step.workload, 1, cost));
    spent += std::chrono::steady_clock::now() - begin;
    if (wanted.dump == n) return items_of(source.spec, plan_to_json(source.spec, kernels, shipped));
    fitting.schedule = ScheduleChoice::kAlgorithm1;
    ATTNLOOM_TRY(const Plan paper,
                 make_plan(source.spec, kernels, fitting, step.workload, 1, cost));
    count(shipped.figures, paper.figures, tally);
  }
  return Json{{"steps", wanted.steps},
              {"within_1_03", tally.near},
              {"worst_vs_algorithm1", tally.worst},
              {"seconds", std::chrono::duration<double>(spent).count()},
              {"model", device.device}};
}

}  // namespace attnloom::cli
