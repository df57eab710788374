// SPDX-License-Identifier: Apache-2.0
// mbarrier: arrivals release, a wait that succeeds acquires the phases that are over.
#include <string>

#include "sim/machine/async.h"
#include "sim/machine/exec.h"
#include "sim/machine/state.h"

namespace attnloom::sim {
namespace {

constexpr std::uint32_t kMostArrivals = (1u << 20) - 1;

std::string at(std::uint64_t address) {
  return "the mbarrier at shared+" + std::to_string(address);
}

void complete_if_over(Cta& cta, Mbarrier& b) {
  ++cta.events;
  if (b.pending != 0 || b.bytes != 0) return;
  ++b.phase;
  b.pending = b.expected;
  if (!cta.checks) return;
  b.gathered.known.own(b.agent) = cta.async->tick(b.agent);
  b.completed = b.gathered;
}

void arrive(Cta& cta, Warp& warp, const Ins& ins, int lane, std::uint64_t address, Mbarrier& b,
            std::uint32_t count, const WarpClock& clock) {
  if (count > b.pending) {
    cta.launch.findings.add(kind::kMbarrierOverflow, ins, [&] {
      return std::to_string(count) + " arrivals at " + at(address) + " where its phase waits for " +
             std::to_string(b.pending) + " of " + std::to_string(b.expected) + ", " +
             cta.describe(warp, lane);
    });
  }
  b.pending -= std::min(count, b.pending);
  if (cta.checks) b.gathered.join(clock);
  complete_if_over(cta, b);
}

}  // namespace

Mbarrier* find_mbarrier(Cta& cta, Warp& warp, const Ins& ins, int lane, std::uint64_t address) {
  auto& barriers = cta.async->barriers;
  auto it = address < cta.shared_bytes ? barriers.find(static_cast<std::uint32_t>(address))
                                       : barriers.end();
  if (it == barriers.end()) {
    cta.launch.findings.add(kind::kMbarrierState, ins, [&] {
      return "no mbarrier was initialised at shared+" + std::to_string(address) + ", " +
             cta.describe(warp, lane);
    });
    return nullptr;
  }
  Mbarrier& b = it->second;
  if (cta.checks && warp.clock.known.own(b.init_warp) < b.init_clock) {
    cta.launch.findings.add(kind::kRaceShared, ins, [&] {
      return "use of " + at(address) + ", not ordered after its initialisation by warp " +
             std::to_string(b.init_warp) + ", " + cta.describe(warp, lane);
    });
  }
  return &b;
}

void complete_bytes(Cta& cta, std::uint32_t barrier, std::uint32_t bytes) {
  auto it = cta.async->barriers.find(barrier);
  if (it == cta.async->barriers.end()) return;  // invalidated meanwhile: reported there
  it->second.bytes -= bytes;
  complete_if_over(cta, it->second);
}

void arrive_late(Cta& cta, Warp& warp, const Ins& ins, int lane, std::uint32_t barrier,
                 const WarpClock& clock) {
  auto it = cta.async->barriers.find(barrier);
  if (it != cta.async->barriers.end()) arrive(cta, warp, ins, lane, barrier, it->second, 1, clock);
}

void exec_mbarrier_init(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask) {
  SharedAccess access = cta.shared_access(warp, ins);
  each_lane(mask, [&](int l) {
    std::uint64_t address = shared_operand(warp, ins, 0, l);
    std::uint32_t count = operand32(warp, ins, 1, l);
    std::byte* p = shared_at(cta, access, l, address, 8, true);
    if (p == nullptr) return;
    std::memset(p, 0xff, 8);
    Async& async = *cta.async;
    auto key = static_cast<std::uint32_t>(address);
    bool is_live = async.barriers.contains(key);
    if (is_live || count == 0 || count > kMostArrivals) {
      cta.launch.findings.add(kind::kMbarrierState, ins, [&] {
        return (is_live ? "initialises again, without mbarrier.inval, "
                        : "a count of " + std::to_string(count) + " for ") +
               at(address) + ", " + cta.describe(warp, l);
      });
    }
    Mbarrier b;
    b.expected = b.pending = count;
    b.agent = is_live ? async.barriers[key].agent : async.barrier_agent(async.barriers_made++);
    b.init_warp = warp.id;
    b.init_clock = warp.clock.known.own(warp.id);
    b.gathered.reset(cta.frame);
    b.completed.reset(cta.frame);
    async.barriers[key] = std::move(b);
    ++cta.events;
  });
}

void exec_mbarrier_inval(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask) {
  each_lane(mask, [&](int l) {
    std::uint64_t address = shared_operand(warp, ins, 0, l);
    if (find_mbarrier(cta, warp, ins, l, address) == nullptr) return;
    for (const BulkLoad& load : cta.async->loads) {
      if (load.barrier != address) continue;
      cta.launch.findings.add(kind::kMbarrierState, ins, [&] {
        return "ends " + at(address) + " while a bulk copy is to complete on it, " +
               cta.describe(warp, l);
      });
    }
    cta.async->barriers.erase(static_cast<std::uint32_t>(address));
  });
}

void exec_mbarrier_arrive(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask) {
  bool released = false;
  each_lane(mask, [&](int l) {
    std::uint64_t address = shared_operand(warp, ins, 1, l), token = 0;
    if (Mbarrier* b = find_mbarrier(cta, warp, ins, l, address)) {
      token = b->phase;
      if (ins.more[3] != kNone) b->bytes += operand32(warp, ins, 3, l);
      std::uint32_t count = ins.more[2] != kNone ? operand32(warp, ins, 2, l) : 1;
      if (ins.detail != 0) arrive(cta, warp, ins, l, address, *b, count, warp.clock);
      released = ins.detail != 0;
      ++cta.events;
    }
    if (ins.more[0] != kNone)
      reinterpret_cast<std::uint64_t*>(warp.registers + ins.more[0])[l] = token;
  });
  if (released && cta.checks) cta.advance(warp);
}

Turn wait_mbarrier(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask) {
  std::uint32_t passed = 0;
  std::uint64_t last = ~std::uint64_t{0};
  each_lane(mask, [&](int l) {
    std::uint64_t address = shared_operand(warp, ins, 1, l);
    Mbarrier* b = find_mbarrier(cta, warp, ins, l, address);
    bool by_parity = ins.detail == 0;
    std::uint64_t want = by_parity ? operand32(warp, ins, 2, l) & 1 : operand64(warp, ins, 2, l);
    bool is_over = b == nullptr || (by_parity ? (b->phase & 1) != want : b->phase > want);
    if (!is_over) {
      warp.poll = {address, want};
      return;
    }
    passed |= 1u << l;
    if (b != nullptr && cta.checks && address != last) warp.clock.join(b->completed);
    last = address;
  });
  std::uint32_t& p = *reinterpret_cast<std::uint32_t*>(warp.registers + ins.more[0]);
  p = (p & ~mask) | passed;
  return passed == mask ? Turn::kGoOn : Turn::kLater;
}

void exec_fence_mbarrier_init(Cta& cta, Warp& warp, const Ins&, std::uint32_t) {
  for (auto& [address, b] : cta.async->barriers)
    b.is_published = b.is_published || b.init_warp == warp.id;
}

void exec_fence_proxy(Cta& cta, Warp& warp, const Ins&, std::uint32_t) {
  if (!cta.checks) return;
  warp.clock.proxied.join(warp.clock.known);
  if (cta.async != nullptr) {
    for (auto& [address, b] : cta.async->barriers) {
      b.is_published = b.is_published || warp.clock.known.own(b.init_warp) >= b.init_clock;
    }
  }
  cta.advance(warp);  // what it writes from here on takes another fence
}

std::string describe_wait(Cta& cta, const Warp& w) {
  const Ins& ins = *w.waits_at;
  if (ins.wait == &wait_registers) {
    return "waits for " + std::to_string(ins.imm) + " registers a thread, " +
           std::to_string(cta.async->registers_free) + " of the CTA are free";
  }
  if (ins.wait == &wait_wgmma) return "waits for wgmma that its whole warpgroup has not issued";
  std::string text = "waits for " + std::string(ins.detail == 0 ? "parity " : "the end of phase ") +
                     std::to_string(w.poll.phase) + " of " + at(w.poll.address);
  auto it = cta.async->barriers.find(static_cast<std::uint32_t>(w.poll.address));
  if (it == cta.async->barriers.end()) return text;
  const Mbarrier& b = it->second;
  return text + ", which is in phase " + std::to_string(b.phase) + " with " +
         std::to_string(b.pending) + " of " + std::to_string(b.expected) + " arrivals and " +
         std::to_string(b.bytes) + " bytes to come";
}

}  // namespace attnloom::sim
