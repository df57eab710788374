// SPDX-License-Identifier: Apache-2.0
// What an item costs: of Algorithm 1 as the paper has it, in tokens, or of a device by what was
// measured on it, in nanoseconds. Values; pure.
#pragma once

#include <cstdint>

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
    return item + step * static_cast<double>((tokens + step_tokens - 1) / step_tokens);
  }
};

// What a device does with all its SMs, and what an item waits for beside that.
struct DeviceProfile {
  double bytes_per_ns = 0;  // keys and values of a decode
  double flops_per_ns = 0;  // of a causal prefill in 16 bits
  double item_ns = 0;       // plan, queries, the first tile's latency, the output
};
// Of bench/results; docs/PLANNER.md says how each follows.
inline constexpr DeviceProfile kH200Profile{4259, 390000, 900};

// Algorithm 1's own: alpha * packed rows of the tile + beta * KV tokens of the chunk; or, with a
// profile, what a CTA of the device is thought to need.
struct CostModel {
  double alpha = 1.0;
  double beta = 1.0;
  const DeviceProfile* profile = nullptr;  // outlives the model

  double of(std::int64_t rows, std::int64_t tokens) const {
    return alpha * static_cast<double>(rows) + beta * static_cast<double>(tokens);
  }
  // In a launch of `ctas` CTAs, which share the device evenly.
  ClassCost of_class(const Spec& spec, const TileClass& tile, int ctas) const;
};

}  // namespace attnloom
