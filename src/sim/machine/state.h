// SPDX-License-Identifier: Apache-2.0
// The running machine: one launch, its current CTA, that CTA's warps. CTAs run one after the other,
// to completion, in an order drawn from the seed: no kernel here waits for another CTA, and races
// between CTAs are found by clocks, not by luck. One host thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "sim/check/findings.h"
#include "sim/check/global_shadow.h"
#include "sim/check/shared_shadow.h"
#include "sim/check/sync.h"
#include "sim/machine/counting.h"
#include "sim/machine/memory.h"
#include "sim/machine/wgmma.h"
#include "sim/program.h"

namespace attnloom::sim {

inline constexpr std::uint32_t kLastClock = (1u << 24) - 1;

// Lanes of a warp at the same instruction.
struct Group {
  std::uint32_t pc = 0;
  std::uint32_t mask = 0;
};

// One cp.async of a warp that has not landed: source bytes are read at issue, written to shared
// memory at the wait.
struct CopyBatch {
  std::uint32_t mask = 0;   // lanes that have not landed
  std::uint32_t group = 0;  // commit group, counted by each lane from 0
  std::uint32_t bytes = 16;
  std::uint64_t number = 0;  // of the warp's batches
  const Ins* ins = nullptr;
  std::uint32_t to[kLanes];
  std::byte data[kLanes][16];
};

struct Warp {
  // A warp that polls is woken when something has happened in its CTA since.
  enum class State : std::uint8_t { kReady, kBlocked, kPolling, kDone };
  State state = State::kReady;
  bool last_group_first =
      false;  // after a slice without end, so that a lane that polls lets others go on
  std::uint32_t poll_pc = kNone;  // of lanes that polled in vain: others behind it go first
  std::uint32_t id = 0;
  std::byte* registers = nullptr;
  std::byte* local = nullptr;  // [lane][Kernel::local_bytes]
  std::vector<Group> groups;
  std::uint64_t executed = 0;
  std::uint32_t all_lanes = 0;  // lanes that began

  std::array<std::uint32_t, kLanes> copy_group = {};
  std::vector<std::unique_ptr<CopyBatch>> copies;  // in order of issue
  std::uint64_t copy_batches = 0;                  // that were ever issued

  WarpClock clock;
  const Ins* waits_at = nullptr;
  std::uint32_t waits_for = 0;  // barrier
  struct Poll {
    std::uint64_t address = 0;
    std::uint64_t phase = 0;
  };
  Poll poll;                          // mbarrier
  std::uint64_t polled_at = 0;        // Cta::events
  std::uint8_t* row_marks = nullptr;  // RowMark by 64 bytes of the register file; with wgmma only

  std::uint32_t live_mask() const {
    std::uint32_t mask = 0;
    for (const Group& g : groups) mask |= g.mask;
    return mask;
  }
};

struct Barrier {
  std::uint32_t arrived = 0;   // warps
  std::uint32_t expected = 0;  // warps; 0: all that live
  struct Waiting {
    std::uint32_t warp = 0;
    std::uint32_t mask = 0;
    const Ins* ins = nullptr;
  };
  std::vector<Waiting> waiting;
  WarpClock clock;
  std::uint32_t population = 0;  // bar.red
  std::uint32_t threads = 0;
};

struct Launch {
  Launch(const Profile& p, const Module::State& m, const Kernel& k, Memory::State& mem,
         const LaunchConfig& c, const Options& o)
      : profile(p),
        module(m),
        kernel(k),
        memory(mem),
        config(c),
        checks(o.checks),
        random_state(o.seed),
        findings(m, k.name) {}

  const Profile& profile;
  const Module::State& module;
  const Kernel& kernel;
  Memory::State& memory;
  const LaunchConfig& config;
  bool checks;
  std::uint64_t random_state;
  Findings findings;
  Counters counters;
  GlobalShadow shadow;
  const std::vector<std::uint64_t>* variables = nullptr;
  Allocation* last = nullptr;  // of the last global access
  std::vector<std::unique_ptr<CopyBatch>> spare_batches;

  std::uint64_t random();  // splitmix64
  std::uint32_t random_below(std::uint32_t n);
  Allocation* allocation(std::uint64_t address, std::size_t bytes) {
    if (last == nullptr || !last->contains(address, bytes)) {
      Allocation* a = memory.find(address);
      if (a == nullptr || !a->contains(address, bytes)) return nullptr;
      last = a;
    }
    return last;
  }
};

struct Async;

struct Cta {
  explicit Cta(Launch& l);
  ~Cta();

  Launch& launch;
  const Kernel& kernel;
  const bool checks;
  std::uint32_t linear = 0;
  std::uint32_t index[3] = {};
  std::uint32_t thread_count = 0;
  std::vector<Warp> warps;
  std::uint32_t shared_bytes = 0;
  std::vector<std::byte> shared;
  SharedShadow shadow;
  SyncTable shared_sync;
  ClockFrame frame;
  std::array<Barrier, 16> barriers;
  SectorCache sectors;
  std::unique_ptr<Async> async;  // of kernels that use it
  std::uint64_t events = 0;      // that a warp may have waited for
  struct Scratch {               // of one product; kept for its memory
    std::vector<std::byte> raw;
    std::vector<float> turned, a, b;
  };
  Scratch scratch;
  std::vector<std::byte> constants;  // first part of every warp's register file

  void begin(std::uint32_t linear_index);
  void run();  // to the end of all warps, or to a deadlock

  std::uint32_t strong_agent(const Warp& w) const {
    return w.id + static_cast<std::uint32_t>(warps.size());
  }
  // What the warp does from here on is not covered by what it published before.
  void advance(Warp& w) {
    // At the last clock that a shadow can hold time stands still: races may then be missed, none is
    // made up.
    std::uint32_t now = std::min(w.clock.known.own(w.id) + 1, kLastClock);
    w.clock.known.own(w.id) = w.clock.known.own(strong_agent(w)) = now;
  }
  SharedAccess shared_access(Warp& w, const Ins& ins, bool strong = false) {
    auto index = static_cast<std::uint32_t>(&ins - kernel.ins.data());
    return {*this, w, ins, w.clock.known.own(), strong ? strong_agent(w) : w.id, index, strong};
  }
  GlobalAccess global_access(Warp& w, const Ins& ins, bool strong = false) {
    std::uint32_t local = strong ? strong_agent(w) : w.id;
    return {*this,
            w,
            ins,
            frame,
            w.clock.known,
            frame.first_agent() + local,
            w.clock.known.own()[local],
            static_cast<std::uint32_t>(&ins - kernel.ins.data()),
            strong};
  }
  std::string describe(const Warp& w, int lane) const;      // "CTA (0,1,0) warp 2 lane 5"
  std::string agent_name(std::uint32_t local_agent) const;  // "warp 2"

 private:
  // So often polling warps may try in vain, one after the other, before it counts as a hang: they
  // may do something else between two tries.
  static constexpr int kIdleRounds = 16;

  // When no warp can go on. False: nothing will ever happen.
  bool wake_pollers();
  void fill_constants();
  void fill_specials(Warp& w);
  void report_deadlock(std::string_view why);

  std::vector<std::byte> register_storage_, local_storage_;
  std::vector<std::uint8_t> row_marks_;
  std::uint64_t idle_since_ = 0;
  int idle_rounds_ = 0;
};

// Runs the warp to its next barrier, its end, or the end of a slice.
void run_warp(Cta& cta, Warp& warp);
void execute_barrier(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask);
// A barrier without a count is complete when all warps that live have come, so the end of a warp
// may complete it.
void barriers_after_exit(Cta& cta);

// One lane's piece of shared or global memory, after all checks; nullptr: the access does not take
// place.
std::byte* shared_outside(Cta& cta, const SharedAccess& access, int lane, std::uint64_t address,
                          std::uint32_t bytes);
inline std::byte* shared_at(Cta& cta, const SharedAccess& access, int lane, std::uint64_t address,
                            std::uint32_t bytes, bool is_write) {
  if (address >= cta.shared_bytes || cta.shared_bytes - address < bytes ||
      (address & (bytes - 1)) != 0) {
    return shared_outside(cta, access, lane, address, bytes);
  }
  auto offset = static_cast<std::uint32_t>(address);
  if (cta.checks && is_write) cta.shadow.write(access, lane, offset, bytes);
  if (cta.checks && !is_write) cta.shadow.read(access, lane, offset, bytes);
  return cta.shared.data() + offset;
}
std::byte* global_outside(Cta& cta, const GlobalAccess& access, int lane, std::uint64_t address,
                          std::uint32_t bytes, bool is_write);
void report_unwritten(Cta& cta, const GlobalAccess& access, int lane, std::uint64_t address);
inline std::byte* global_at(Cta& cta, const GlobalAccess& access, int lane, std::uint64_t address,
                            std::uint32_t bytes, bool is_write) {
  Launch& launch = cta.launch;
  Allocation* allocation = launch.allocation(address, bytes);
  if (allocation == nullptr || (address & (bytes - 1)) != 0)
    return global_outside(cta, access, lane, address, bytes, is_write);
  std::size_t offset = address - allocation->base;
  if (is_write) {
    allocation->mark_written(offset, bytes);
    if (cta.checks) launch.shadow.write(access, lane, *allocation, offset, bytes);
  } else if (cta.checks) {
    if (!allocation->is_written(offset, bytes)) report_unwritten(cta, access, lane, address);
    launch.shadow.read(access, lane, *allocation, offset, bytes);
  }
  return allocation->data.get() + offset;
}

inline bool is_valid_lane(std::uint32_t mask, int lane) {
  return (mask >> lane & 1) != 0;
}

// Operand number `k` of a lane.
inline std::uint32_t operand32(const Warp& warp, const Ins& ins, std::size_t k, int lane) {
  return reinterpret_cast<const std::uint32_t*>(warp.registers + ins.more[k])[lane];
}
inline std::uint64_t operand64(const Warp& warp, const Ins& ins, std::size_t k, int lane) {
  return reinterpret_cast<const std::uint64_t*>(warp.registers + ins.more[k])[lane];
}
// From here on the warp is ordered after what the agent did up to `clock`.
inline void learn(Warp& warp, std::uint32_t agent, std::uint32_t clock) {
  std::uint32_t& known = warp.clock.known.own(agent);
  known = std::max(known, clock);
}

}  // namespace attnloom::sim
