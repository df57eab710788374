// SPDX-License-Identifier: Apache-2.0
// What works on its own in a CTA: mbarriers, bulk copies, wgmma; and the registers that its warps
// trade. Only kernels that use such instructions have an Async (Kernel::uses_async).
//
// Each source of asynchronous accesses is an agent with a clock of its own, which advances when a
// piece of work is done. A bulk load belongs to the mbarrier that it completes on, not to the warp
// that issued it: who waits for another phase, or another barrier, knows nothing of it. The reads
// of a wgmma belong to its warpgroup, because one thread may release a stage for the four warps.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <map>
#include <vector>

#include "sim/check/shared_shadow.h"
#include "sim/check/sync.h"
#include "sim/machine/wgmma.h"
#include "sim/tensor_map.h"

namespace attnloom::sim {

struct Mbarrier {
  std::uint32_t expected = 0;  // arrivals of a phase
  std::uint32_t pending = 0;   // arrivals that the current phase still needs
  std::int64_t bytes = 0;      // that it still needs; below 0: more came than was announced
  std::uint64_t phase = 0;
  std::uint32_t agent = 0;
  std::uint32_t init_warp = 0, init_clock = 0;
  bool is_published = false;  // the async proxy may complete on it
  WarpClock gathered;         // of all arrivals
  WarpClock completed;        // of those up to the last completed phase
};

// A copy into shared memory: read at issue, landed when nothing else can go on.
struct BulkLoad {
  const Ins* ins = nullptr;
  std::uint32_t to = 0;
  std::uint32_t barrier = 0;  // address
  std::vector<std::byte> data;
};

// An arrival that waits for the cp.async of its lanes.
struct CopyArrival {
  const Ins* ins = nullptr;
  std::uint32_t warp = 0, lanes = 0;
  std::uint64_t before = 0;  // number of the first batch that it does not wait for
  WarpClock clock;           // of the warp when it was issued
  std::array<std::uint32_t, kLanes> barrier = {};
};

// A copy out of shared memory: read and written when its warp waits for it.
struct BulkStore {
  struct Piece {
    std::uint64_t to = 0;
    std::uint32_t from = 0;  // in the copy
    std::uint32_t bytes = 0;
  };
  const Ins* ins = nullptr;
  int lane = 0;
  std::uint32_t group = 0;
  std::uint32_t from = 0, bytes = 0;
  std::vector<Piece> pieces;
  std::uint32_t read_clock = 0, write_clock = 0;
  bool is_read = false;
  std::vector<std::byte> data;
};

struct AsyncWarp {
  std::array<std::uint32_t, kLanes> store_group = {};
  std::vector<BulkStore> stores;  // in order of issue
  std::uint32_t registers = 0;    // of one thread
};

struct Async {
  explicit Async(std::uint32_t warp_count);

  static constexpr std::uint32_t kBarrierAgents = 64;
  std::uint32_t warps = 0, groups = 0;
  std::map<std::uint32_t, Mbarrier> barriers;  // by address
  std::uint32_t barriers_made = 0;
  std::vector<BulkLoad> loads;
  std::vector<CopyArrival> arrivals;
  std::vector<AsyncWarp> warp;
  std::vector<Warpgroup> group;
  std::vector<std::uint32_t> clock;  // by agent, from the first that is no warp
  std::uint32_t registers_free = 0;  // of the CTA's share

  std::uint32_t agents() const { return 4 * warps + groups + kBarrierAgents; }
  std::uint32_t readers() const { return groups + warps; }
  std::uint32_t product_agent(std::uint32_t g) const { return 2 * warps + g; }
  std::uint32_t read_agent(std::uint32_t w) const { return 2 * warps + groups + w; }
  std::uint32_t write_agent(std::uint32_t w) const { return 3 * warps + groups + w; }
  // Barriers beyond the last agent share theirs, which may hide a race and makes none up.
  std::uint32_t barrier_agent(std::uint32_t k) const {
    return 4 * warps + groups + k % kBarrierAgents;
  }
  std::uint32_t& clock_of(std::uint32_t agent) { return clock[agent - 2 * warps]; }
  std::uint32_t tick(std::uint32_t agent);
  void begin(const ClockFrame& frame);
};

template <class F>
void each_lane(std::uint32_t mask, F f) {
  for (; mask != 0; mask &= mask - 1) f(std::countr_zero(mask));
}

// The 64-bit operand number `k` of the lane as an offset in shared memory: generic addresses lose
// their window.
std::uint64_t shared_operand(const Warp& warp, const Ins& ins, std::size_t k, int lane);
// nullptr after a finding: there is none, or the warp is not ordered after its initialisation.
Mbarrier* find_mbarrier(Cta& cta, Warp& warp, const Ins& ins, int lane, std::uint64_t address);
void complete_bytes(Cta& cta, std::uint32_t barrier, std::uint32_t bytes);
// One arrival that releases what `clock` knows.
void arrive_late(Cta& cta, Warp& warp, const Ins& ins, int lane, std::uint32_t barrier,
                 const WarpClock& clock);
// Lands one bulk load or the copies of one arrival, chosen by the seed. False: none is in flight.
bool land_one(Cta& cta);
void land_load(Cta& cta, std::uint32_t k);
void land_arrival(Cta& cta, std::uint32_t k);
// At the end of a CTA: a store whose source was read is done without it, all else is a fault.
void finish_copies(Cta& cta);
// What a warp that polls waits for.
std::string describe_wait(Cta& cta, const Warp& warp);
// The launch's share of registers for each thread.
void begin_registers(Cta& cta);

}  // namespace attnloom::sim
