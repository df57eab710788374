// SPDX-License-Identifier: Apache-2.0
#include "sim/machine/async.h"

#include <algorithm>
#include <string>

#include "sim/machine/exec.h"
#include "sim/machine/state.h"

namespace attnloom::sim {

Async::Async(std::uint32_t warp_count)
    : warps(warp_count), groups((warp_count + 3) / 4), warp(warp_count), group(groups) {
  clock.assign(agents() - 2 * warps, 0);
}

std::uint32_t Async::tick(std::uint32_t agent) {
  std::uint32_t& c = clock_of(agent);
  c = std::min(c + 1, kLastClock);
  return c;
}

void Async::begin(const ClockFrame& frame) {
  barriers.clear();
  barriers_made = 0;
  loads.clear();
  arrivals.clear();
  std::fill(clock.begin(), clock.end(), frame.base - 1);
  for (AsyncWarp& w : warp) w = AsyncWarp{};
  for (Warpgroup& g : group) g = Warpgroup{};
}

std::uint64_t shared_operand(const Warp& warp, const Ins& ins, std::size_t k, int lane) {
  std::uint64_t a = operand64(warp, ins, k, lane);
  return a >= kSharedWindow && a - kSharedWindow < kWindowBytes ? a - kSharedWindow : a;
}

bool land_one(Cta& cta) {
  if (cta.async == nullptr) return false;
  auto loads = static_cast<std::uint32_t>(cta.async->loads.size());
  auto all = loads + static_cast<std::uint32_t>(cta.async->arrivals.size());
  if (all == 0) return false;
  std::uint32_t k = cta.launch.random_below(all);
  ++cta.events;
  if (k < loads) {
    land_load(cta, k);
  } else {
    land_arrival(cta, k - loads);
  }
  return true;
}

bool Cta::wake_pollers() {
  bool polls = std::any_of(warps.begin(), warps.end(),
                           [](const Warp& w) { return w.state == Warp::State::kPolling; });
  if (!polls) return false;
  if (idle_since_ != events) idle_rounds_ = 0;
  if (land_one(*this)) return true;
  idle_since_ = events;
  if (++idle_rounds_ > kIdleRounds) return false;
  for (Warp& w : warps) {
    if (w.state == Warp::State::kPolling) w.state = Warp::State::kReady;
  }
  return true;
}

std::string Cta::agent_name(std::uint32_t agent) const {
  auto count = static_cast<std::uint32_t>(warps.size());
  if (agent < 2 * count) return "warp " + std::to_string(agent % count);
  agent -= 2 * count;
  if (agent < async->groups) {
    return "wgmma of warps " + std::to_string(4 * agent) + "-" + std::to_string(4 * agent + 3);
  }
  agent -= async->groups;
  if (agent < 2 * count) return "a bulk store of warp " + std::to_string(agent % count);
  for (const auto& [address, b] : async->barriers) {
    if (b.agent == async->barrier_agent(agent - 2 * count))
      return "a bulk copy of the mbarrier at shared+" + std::to_string(address);
  }
  return "a bulk copy";
}

}  // namespace attnloom::sim
