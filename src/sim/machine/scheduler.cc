// SPDX-License-Identifier: Apache-2.0
// The loop over instructions. Diverged lanes are groups (pc, mask); the group with the least pc
// runs until it branches or meets another group, which makes them join where the compiler's layout
// lets paths meet.
#include <algorithm>
#include <bit>
#include <string>

#include "sim/machine/state.h"

namespace attnloom::sim {
namespace {

// A warp that reaches no barrier in so many instructions may be polling for another one.
constexpr std::uint64_t kSliceInstructions = 1 << 20;

// The group that polled in vain must not keep those behind it from doing what it waits for.
std::uint32_t next_behind(const std::vector<Group>& groups, std::uint32_t polled,
                          std::uint32_t otherwise) {
  std::uint32_t pc = kNone;
  for (const Group& g : groups) {
    if (g.pc > polled) pc = std::min(pc, g.pc);
  }
  return pc != kNone ? pc : otherwise;
}

// Takes the group to run next, together with all others at the same pc. REQUIRES: there are groups.
Group take_group(Warp& warp, std::uint32_t& stop) {
  std::vector<Group>& groups = warp.groups;
  std::uint32_t pc = groups[0].pc;
  for (const Group& g : groups)
    pc = warp.last_group_first ? std::max(pc, g.pc) : std::min(pc, g.pc);
  warp.last_group_first = false;
  if (warp.poll_pc != kNone) pc = next_behind(groups, warp.poll_pc, pc);
  warp.poll_pc = kNone;
  Group taken{pc, 0};
  std::size_t kept = 0;
  stop = ~0u;
  for (const Group& g : groups) {
    if (g.pc == pc) {
      taken.mask |= g.mask;
    } else {
      if (g.pc > pc) stop = std::min(stop, g.pc);
      groups[kept++] = g;
    }
  }
  groups.resize(kept);
  return taken;
}

void branch_table(Warp& warp, const Ins& ins, std::uint32_t mask, Group& g) {
  const auto* index = reinterpret_cast<const std::uint32_t*>(warp.registers + ins.o[0]);
  std::uint32_t last = static_cast<std::uint32_t>(ins.imm) - 1;
  for (std::uint32_t m = mask; m != 0; m &= m - 1) {
    int l = std::countr_zero(m);
    warp.groups.push_back({ins.table[std::min(index[l], last)], 1u << l});
  }
  g.mask &= ~mask;
  ++g.pc;
}

// True: the warp's turn is over.
bool wait(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask, Group& g) {
  if (mask == 0) {
    ++g.pc;
    return false;
  }
  Turn turn = ins.wait(cta, warp, ins, mask);
  std::uint32_t at = g.pc;
  if (turn != Turn::kAgain) ++g.pc;
  if (turn == Turn::kGoOn) return false;
  warp.poll_pc = at + 1;
  warp.waits_at = &ins;
  warp.polled_at = cta.events;
  warp.state = Warp::State::kPolling;
  return true;
}

enum class After : std::uint8_t { kNext, kRegroup, kStop };

After control(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask, Group& g,
              std::uint32_t& stop) {
  switch (ins.kind) {
    case InsKind::kBranch:
      if (mask == g.mask) {
        g.pc = ins.target;
      } else if (mask == 0) {
        ++g.pc;
      } else {
        warp.groups.push_back({ins.target, mask});
        g.mask &= ~mask;
        ++g.pc;
        stop = std::min(stop, ins.target);
      }
      return After::kNext;
    case InsKind::kBranchTable:
      branch_table(warp, ins, mask, g);
      return After::kRegroup;
    case InsKind::kExit:
      g.mask &= ~mask;
      ++g.pc;
      return g.mask == 0 ? After::kRegroup : After::kNext;
    case InsKind::kBarrier:
      ++g.pc;
      if (mask == 0) return After::kNext;
      warp.groups.push_back(g);
      g.mask = 0;
      execute_barrier(cta, warp, ins, mask);
      return After::kStop;
    case InsKind::kWait:
      return wait(cta, warp, ins, mask, g) ? After::kStop : After::kNext;
    default:
      ++g.pc;
      return After::kNext;
  }
}

// Registers that a wgmma under way owns: nobody may use its sums, nobody may write its A.
void watch_registers(Cta& cta, Warp& warp, const Ins& ins) {
  for (std::uint32_t k = 0; k < ins.operands; ++k) {
    if (ins.more[k] == kNone) continue;
    std::uint8_t& mark = warp.row_marks[ins.more[k] / kRowMarkBytes];
    bool is_output = k < ins.outputs;
    if ((mark & (kRowAccumulates | (is_output ? kRowMultiplies : 0))) != 0) {
      cta.launch.findings.add(kind::kInFlightRegister, ins, [&] {
        const char* what = (mark & kRowAccumulates) != 0 ? "sums" : "A";
        return std::string(is_output ? "writes" : "reads") + " a register with the " + what +
               " of a wgmma that was not waited for, " + cta.describe(warp, -1);
      });
    }
    if (is_output) mark |= kRowTouched;
  }
}

// Runs one group. True: the warp goes on with its other groups.
template <bool kWatch>
bool run_group(Cta& cta, Warp& warp, Group g, std::uint32_t stop, std::uint64_t limit) {
  const Ins* program = cta.kernel.ins.data();
  std::byte* registers = warp.registers;
  std::uint64_t executed = warp.executed;
  bool go_on = true;
  for (;;) {
    const Ins& ins = program[g.pc];
    std::uint32_t mask = g.mask;
    if (ins.guard != kNone) {
      std::uint32_t p = *reinterpret_cast<const std::uint32_t*>(registers + ins.guard);
      mask &= ins.guard_negated ? ~p : p;
    }
    executed += ins.weight;
    if (ins.kind <= InsKind::kExec) {
      if (mask != 0) {
        if constexpr (kWatch) watch_registers(cta, warp, ins);
        if (ins.kind == InsKind::kLane) {
          ins.lane(registers, ins, mask);
        } else {
          warp.executed = executed;
          ins.exec(cta, warp, ins, mask);
        }
      }
      ++g.pc;
    } else {
      After after = control(cta, warp, ins, mask, g, stop);
      if (after != After::kNext) {
        go_on = after == After::kRegroup;
        break;
      }
    }
    if (g.pc >= stop || executed >= limit) break;
  }
  if (g.mask != 0) warp.groups.push_back(g);
  warp.executed = executed;
  return go_on;
}

}  // namespace

void run_warp(Cta& cta, Warp& warp) {
  std::uint64_t begin = warp.executed, limit = begin + kSliceInstructions;
  std::uint32_t stop = ~0u;
  bool watches = cta.checks && warp.row_marks != nullptr;
  while (!warp.groups.empty()) {
    Group g = take_group(warp, stop);
    bool goes_on = watches ? run_group<true>(cta, warp, g, stop, limit)
                           : run_group<false>(cta, warp, g, stop, limit);
    if (!goes_on) break;
    if (warp.executed >= limit) {
      warp.last_group_first = true;
      break;
    }
  }
  if (warp.groups.empty()) warp.state = Warp::State::kDone;
  cta.launch.counters.instructions += warp.executed - begin;
}

}  // namespace attnloom::sim
