// SPDX-License-Identifier: Apache-2.0
// Vector clocks over all warps of a launch.
//
// An agent is a source of accesses: each warp is two, one for its weak accesses and one for its
// strong ones (atomics, volatile, relaxed). The second exists because whoever observes a strong
// write is ordered after that write alone, not after what its warp did before (that takes a
// release). What works on its own has agents too, in kernels that use it (machine/async.h).
//
// Agents of one CTA are numbered 0 .. n-1 ("local": weak ones of the warps, then strong ones, then
// the others); in a launch an agent is cta * n + local. A warp keeps its own CTA's components
// dense, and those of other CTAs in a sorted list that is empty until it acquires something.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace attnloom::sim {

// Sorted by agent.
using SparseClock = std::vector<std::pair<std::uint32_t, std::uint32_t>>;

void join(SparseClock& into, const SparseClock& from);
std::uint32_t component(const SparseClock& clock, std::uint32_t agent);  // 0 if absent

// Which agents are local, and below which clock a component says nothing (clocks go on from CTA to
// CTA).
struct ClockFrame {
  std::uint32_t cta = 0;
  std::uint32_t warps = 0;   // of a CTA
  std::uint32_t agents = 0;  // of a CTA
  std::uint32_t base = 1;    // components below are "nothing known"

  std::uint32_t first_agent() const { return cta * agents; }
  bool is_strong(std::uint32_t agent) const { return agent % agents - warps < warps; }
};

class VectorClock {
 public:
  // Nothing known; allocates the dense part.
  void reset(const ClockFrame& frame) {
    own_.assign(frame.agents, frame.base - 1);
    foreign_.reset();
  }
  bool is_bottom() const { return own_.empty(); }
  void clear() {
    own_.clear();
    foreign_.reset();
  }

  const std::uint32_t* own() const { return own_.data(); }
  std::uint32_t& own(std::uint32_t local) { return own_[local]; }

  bool covers(const ClockFrame& frame, std::uint32_t agent, std::uint32_t clock) const {
    std::uint32_t local = agent - frame.first_agent();
    if (local < frame.agents) return own_.empty() ? clock < frame.base : own_[local] >= clock;
    return foreign_ != nullptr && component(*foreign_, agent) >= clock;
  }
  void join(const VectorClock& other);  // either may be bottom; of one CTA
  void join(const ClockFrame& frame, const SparseClock& other);
  SparseClock sparse(const ClockFrame& frame) const;

 private:
  std::vector<std::uint32_t> own_;  // empty: bottom
  std::shared_ptr<const SparseClock> foreign_;
};

}  // namespace attnloom::sim
