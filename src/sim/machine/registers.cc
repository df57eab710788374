// SPDX-License-Identifier: Apache-2.0
// setmaxnreg: the warps of a CTA trade the registers that its launch was given.
#include <algorithm>
#include <string>

#include "sim/machine/async.h"
#include "sim/machine/exec.h"
#include "sim/machine/state.h"

namespace attnloom::sim {
namespace {

// What ptxas gives a thread of a kernel with launch bounds: all registers of the SM, in eights.
std::uint32_t launch_registers(const Cta& cta) {
  const Kernel& k = cta.kernel;
  if (k.registers_limit != 0) return (k.registers_limit + 7) / 8 * 8;
  auto threads = static_cast<std::uint32_t>(cta.warps.size()) * kLanes * k.ctas_per_sm;
  auto all = static_cast<std::uint32_t>(cta.launch.profile.registers_per_sm);
  return std::min(all / threads / 8 * 8, 256u);
}

}  // namespace

void begin_registers(Cta& cta) {
  cta.async->registers_free = 0;
  for (AsyncWarp& w : cta.async->warp) w.registers = launch_registers(cta);
}

Turn wait_registers(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t) {
  Async& async = *cta.async;
  std::uint32_t& have = async.warp[warp.id].registers;
  auto wanted = static_cast<std::uint32_t>(ins.imm);
  bool increases = ins.detail != 0;
  bool is_bounded = cta.kernel.threads_limit != 0;
  if (!is_bounded || (increases ? wanted < have : wanted > have)) {
    cta.launch.findings.add(kind::kRegisterBudget, ins, [&] {
      return is_bounded
                 ? "setmaxnreg from " + std::to_string(have) + " to " + std::to_string(wanted) +
                       " registers a thread, " + cta.describe(warp, -1)
                 : "setmaxnreg has no effect in a kernel without __launch_bounds__";
    });
    return Turn::kGoOn;
  }
  if (increases && (wanted - have) * kLanes > async.registers_free) return Turn::kAgain;
  async.registers_free += have * kLanes;
  async.registers_free -= wanted * kLanes;
  have = wanted;
  ++cta.events;
  return Turn::kGoOn;
}

}  // namespace attnloom::sim
