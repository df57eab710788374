// SPDX-License-Identifier: Apache-2.0
// For each slot the first and last instruction at which its value must be kept. Rows of the
// register file are then shared: without it a kernel of 600 KB a warp would run from memory instead
// of the cache.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/decode/builder.h"

namespace attnloom::sim {

struct LiveRange {
  std::uint32_t slot = 0;
  std::uint32_t begin = kNone;  // kNone: never mentioned
  std::uint32_t end = 0;        // inclusive
};

// One range a slot of kind kValue that is mentioned, sorted by begin. A range has no holes, and
// control may reach an instruction for some lanes only: what is live is decided for one lane, and
// lanes do not share their parts of a row.
std::vector<LiveRange> live_ranges(std::span<const Slot> slots, std::span<const Draft> drafts,
                                   std::span<const std::uint32_t> operands);

}  // namespace attnloom::sim
