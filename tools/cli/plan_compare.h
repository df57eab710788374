// SPDX-License-Identifier: Apache-2.0
// Several ways to cut one batch, side by side: on the same CTAs, in the same cost units. Pure;
// thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "plan/least_loaded.h"
#include "plan/plan.h"
#include "tools/cli/plan_view.h"

namespace attnloom::cli {

struct ScheduleSummary {
  std::string name;
  std::int64_t items = 0;
  std::int64_t split_tiles = 0;  // output tiles of several partial states
  // Of shared prefixes, each read once for its members; nullopt: a model that has no sharing.
  std::optional<std::int64_t> prefix_tiles;
  double longest = 0;                       // cost of the longest queue
  double mean = 0;                          // cost of all queues / CTAs
  std::optional<std::int64_t> block_bytes;  // copied to the device; nullopt: a model has none

  double ratio() const { return mean > 0 ? longest / mean : 1; }
};

// CTAs that take work in a given order, as the planner deals it out.
class CtaLoads {
 public:
  explicit CtaLoads(std::size_t ctas) : least_(static_cast<int>(ctas)), cost_(ctas, 0) {}
  // `weight` is what the choice goes by, `cost` what the queue then has.
  void take(double weight, double cost) { cost_[least_.take(weight)] += cost; }
  double longest() const;
  double mean() const;

 private:
  LeastLoaded least_;
  std::vector<double> cost_;
};

// The paper's Algorithm 1, as the paper has it: one chunk length for the batch, longest first, its
// costs blind to causal masks and windows. The queues are then measured by `cost` with them. Where
// the plan shares prefixes it cuts the same prefix tiles: composable formats are the paper's, too.
ScheduleSummary paper_schedule(const Spec& spec, const PlanView& plan, const CostModel& cost);

// That, the peer's chunking and the plan itself.
std::vector<ScheduleSummary> compare_schedules(const Spec& spec, const PlanView& plan,
                                               const CostModel& cost);

Json comparison_to_json(const std::vector<ScheduleSummary>& schedules, std::size_t ctas);
std::string comparison_to_text(const std::vector<ScheduleSummary>& schedules, std::size_t ctas);

}  // namespace attnloom::cli
