// SPDX-License-Identifier: Apache-2.0
// What an item costs: of Algorithm 1 as the paper has it, in tokens, or of a device by what was
// measured on it, in nanoseconds. Values; pure.
#pragma once

#include <cstdint>

#include "base/divide_up.h"
#include "spec/spec.h"
#include "spec/tiles.h"

namespace attnloom {

// Of one tile class. A split tile's states are merged by whoever arrives last, which nobody knows
// beforehand: each of its items bears its own state's share.
struct ClassCost {
  double item = 0;  // whatever its keys
  double step = 0;  // for each `step_tokens` keys begun
  std::int64_t step_tokens = 1;
  double merge = 0;  // of a partial state: written once, read once

  double of(std::int64_t tokens) const {
    return item + step * static_cast<double>(divide_up(tokens, step_tokens));
  }
};

// What a device does with all its SMs, and what an item waits for beside that.
struct DeviceProfile {
  double bytes_per_ns = 0;      // keys and values of a decode
  double flops_per_ns = 0;      // of products in 16 bits
  double step_ns = 0;           // of a prefill's KV tile beside its products: its barrier
  double item_ns = 0;           // of a decode's item whose latency the SM's other CTAs cover
  double latency_ns = 0;        // of an item that nothing covers: plan, queries, first tile, output
  double cta_bytes_per_ns = 0;  // the most that the copies one CTA has in flight bring
  double state_ns = 0;          // of a partial state: announced, and its share of the merge
  double launch_ns = 0;         // of a launch beside its longest queue
};
// Of bench/results; docs/PLANNER.md says how each follows.
inline constexpr DeviceProfile kH200Profile{4600, 400000, 400, 1500, 5500, 25, 1000, 7000};

// Algorithm 1's own: alpha * packed rows of the tile + beta * KV tokens of the chunk; or, with a
// profile, the nanoseconds that a CTA of the device is thought to need.
struct CostModel {
  double alpha = 1.0;
  double beta = 1.0;
  const DeviceProfile* profile = nullptr;  // outlives the model
  bool judges = false;  // with a profile: whether PlanFigures::reachable is reckoned

  double of(std::int64_t rows, std::int64_t tokens) const {
    return alpha * static_cast<double>(rows) + beta * static_cast<double>(tokens);
  }
  // In a launch of `ctas` CTAs, which share the device evenly. `tokens`: of a usual item; short
  // ones are bound by their latency, longer ones by the memory that all share.
  ClassCost of_class(const Spec& spec, const TileClass& tile, int ctas, std::int64_t tokens) const;
};

}  // namespace attnloom
