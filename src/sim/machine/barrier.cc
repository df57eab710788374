// SPDX-License-Identifier: Apache-2.0
// bar.sync, bar.arrive, bar.red and their named forms. A warp arrives as a whole.
#include <bit>
#include <string>

#include "sim/machine/exec.h"
#include "sim/machine/state.h"

namespace attnloom::sim {
namespace {

std::uint32_t first_lane_value(const Warp& w, std::uint32_t offset, std::uint32_t mask) {
  return reinterpret_cast<const std::uint32_t*>(w.registers + offset)[std::countr_zero(mask)];
}

void deliver_result(Warp& w, const Barrier& b, const Ins& ins, std::uint32_t mask) {
  if (ins.o[0] == kNone) return;
  auto* row = reinterpret_cast<std::uint32_t*>(w.registers + ins.o[0]);
  auto op = static_cast<BarrierOp>(ins.detail);
  if (op == BarrierOp::kRedPopc) {
    for (std::uint32_t m = mask; m != 0; m &= m - 1) row[std::countr_zero(m)] = b.population;
    return;
  }
  bool result = op == BarrierOp::kRedAnd ? b.population == b.threads : b.population != 0;
  *row = (*row & ~mask) | (result ? mask : 0);
}

void release_if_complete(Cta& cta, Barrier& b) {
  std::uint32_t expected = b.expected;
  if (expected == 0) {
    for (const Warp& w : cta.warps) expected += w.state != Warp::State::kDone;
  }
  if (b.arrived == 0 || b.arrived < expected) return;
  for (const Barrier::Waiting& waiting : b.waiting) {
    Warp& w = cta.warps[waiting.warp];
    w.state = Warp::State::kReady;
    w.waits_at = nullptr;
    if (cta.checks) w.clock.join(b.clock);
    deliver_result(w, b, *waiting.ins, waiting.mask);
  }
  b = Barrier{};
}

std::uint32_t expected_warps(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask) {
  if (ins.o[2] == kNone) return 0;
  std::uint32_t threads = first_lane_value(warp, ins.o[2], mask);
  auto all = static_cast<std::uint32_t>(cta.warps.size());
  if (threads % kLanes != 0 || threads == 0 || threads / kLanes > all) {
    cta.launch.findings.add(kind::kBarrierCount, ins, [&] {
      return "a barrier of " + std::to_string(threads) + " threads in a CTA of " +
             std::to_string(cta.thread_count) + ", " + cta.describe(warp, -1);
    });
  }
  return std::max((threads + kLanes - 1) / kLanes, 1u);
}

}  // namespace

void execute_barrier(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask) {
  std::uint32_t live = warp.live_mask(), id = first_lane_value(warp, ins.o[1], mask);
  ++cta.launch.counters.barriers;
  if (mask != live) {
    cta.launch.findings.add(kind::kDivergentBarrier, ins, [&] {
      return "lanes " + std::to_string(mask) + " of " + std::to_string(live) + " arrive, " +
             cta.describe(warp, -1);
    });
  }
  if (id >= cta.barriers.size()) {
    cta.launch.findings.add(kind::kBarrierCount, ins, [&] {
      return "barrier " + std::to_string(id) + " of 16, " + cta.describe(warp, -1);
    });
    return;
  }
  Barrier& b = cta.barriers[id];
  std::uint32_t expected = expected_warps(cta, warp, ins, mask);
  if (b.arrived != 0 && b.expected != expected) {
    cta.launch.findings.add(kind::kBarrierCount, ins, [&] {
      return "barrier " + std::to_string(id) + " is awaited by " + std::to_string(expected) +
             " warps here and by " + std::to_string(b.expected) + " elsewhere, " +
             cta.describe(warp, -1);
    });
  }
  b.expected = expected;
  ++b.arrived;
  ++cta.events;
  b.threads += static_cast<std::uint32_t>(std::popcount(mask));
  if (ins.o[3] != kNone) {
    b.population += static_cast<std::uint32_t>(
        std::popcount(*reinterpret_cast<const std::uint32_t*>(warp.registers + ins.o[3]) & mask));
  }
  if (cta.checks) {
    b.clock.join(warp.clock);
    cta.advance(warp);
  }
  if (static_cast<BarrierOp>(ins.detail) != BarrierOp::kArrive) {
    b.waiting.push_back({warp.id, mask, &ins});
    warp.state = Warp::State::kBlocked;
    warp.waits_at = &ins;
    warp.waits_for = id;
  }
  release_if_complete(cta, b);
}

void barriers_after_exit(Cta& cta) {
  for (Barrier& b : cta.barriers) {
    if (b.arrived != 0 && b.expected == 0) release_if_complete(cta, b);
  }
}

}  // namespace attnloom::sim
