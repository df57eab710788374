// SPDX-License-Identifier: Apache-2.0
// cp.async.bulk. Loads land when no warp can go on, in the order of the seed; a store reads and
// writes when its thread waits for that.
#include "sim/machine/bulk.h"

#include <algorithm>
#include <string>

#include "sim/machine/exec.h"
#include "sim/machine/state.h"

namespace attnloom::sim {
namespace {

bool is_plain_copy(Cta& cta, Warp& warp, const Ins& ins, int lane, std::uint64_t global,
                   std::uint64_t shared, std::uint32_t bytes) {
  if (bytes == 0 || bytes % 16 != 0) {
    cta.launch.findings.add(kind::kBadCopySize, ins, [&] {
      return "a bulk copy of " + std::to_string(bytes) + " bytes, which is no multiple of 16, " +
             cta.describe(warp, lane);
    });
    return false;
  }
  if (global % 16 != 0) {
    cta.launch.findings.add(kind::kMisaligned, ins, [&] {
      return "a bulk copy at " + cta.launch.memory.describe(global) +
             ", which is no multiple of 16 bytes, " + cta.describe(warp, lane);
    });
    return false;
  }
  return shared_range(cta, warp, ins, lane, shared, bytes, 16);
}

// Global accesses are aligned powers of two.
std::uint32_t step_of(std::uint64_t address, std::uint32_t left) {
  std::uint32_t step = 16;
  while (step > 1 && (address % step != 0 || left < step)) step /= 2;
  return step;
}

void read_store(Cta& cta, Warp& warp, BulkStore& s) {
  s.data.assign(cta.shared.begin() + s.from, cta.shared.begin() + s.from + s.bytes);
  s.is_read = true;
  if (cta.checks) learn(warp, cta.async->read_agent(warp.id), s.read_clock);
}

// From its issue on the store owns what it will write: a read before the wait has no order.
void claim_target(Cta& cta, Warp& warp, const BulkStore& s) {
  GlobalAccess access = cta.global_access(warp, *s.ins);
  access.agent = cta.frame.first_agent() + cta.async->write_agent(warp.id);
  access.clock = s.write_clock;
  for (const BulkStore::Piece& piece : s.pieces) {
    for (std::uint32_t k = 0; k < piece.bytes;) {
      std::uint32_t step = step_of(piece.to + k, piece.bytes - k);
      global_at(cta, access, s.lane, piece.to + k, step, true);
      k += step;
    }
    count_bulk(cta, piece.to, piece.bytes, true);
  }
}

void write_store(Cta& cta, Warp& warp, const BulkStore& s) {
  for (const BulkStore::Piece& piece : s.pieces) {
    if (Allocation* a = cta.launch.allocation(piece.to, piece.bytes))
      std::memcpy(a->data.get() + (piece.to - a->base), &s.data[piece.from], piece.bytes);
  }
  if (cta.checks) learn(warp, cta.async->write_agent(warp.id), s.write_clock);
}

}  // namespace

void read_global(Cta& cta, const GlobalAccess& access, int lane, std::uint64_t address,
                 std::uint32_t bytes, std::byte* to) {
  for (std::uint32_t k = 0; k < bytes;) {
    std::uint32_t step = step_of(address + k, bytes - k);
    if (const std::byte* p = global_at(cta, access, lane, address + k, step, false)) {
      std::memcpy(to + k, p, step);
    } else {
      std::memset(to + k, 0xff, step);
    }
    k += step;
  }
}

void count_bulk(Cta& cta, std::uint64_t address, std::uint32_t bytes, bool is_store) {
  if (bytes == 0) return;
  Counters& c = cta.launch.counters;
  std::uint64_t sectors = ((address + bytes - 1) >> 5) - (address >> 5) + 1;
  (is_store ? c.global_store_bytes : c.global_load_bytes) += bytes;
  (is_store ? c.global_store_sectors : c.global_load_sectors) += sectors;
  if (!is_store) c.global_fetch_sectors += sectors;
}

bool shared_range(Cta& cta, Warp& warp, const Ins& ins, int lane, std::uint64_t address,
                  std::uint64_t bytes, std::uint32_t align) {
  bool inside = address <= cta.shared_bytes && cta.shared_bytes - address >= bytes;
  if (inside && address % align == 0) return true;
  cta.launch.findings.add(inside ? kind::kMisaligned : kind::kOutOfBounds, ins, [&] {
    return "a bulk copy of " + std::to_string(bytes) + " bytes at shared+" +
           std::to_string(address) + " of " + std::to_string(cta.shared_bytes) +
           (inside ? ", which is no multiple of " + std::to_string(align) : std::string()) + ", " +
           cta.describe(warp, lane);
  });
  return false;
}

void issue_load(Cta& cta, Warp& warp, const Ins& ins, int lane, std::uint64_t barrier,
                std::uint32_t to, std::vector<std::byte> data) {
  const Mbarrier* b = find_mbarrier(cta, warp, ins, lane, barrier);
  if (b == nullptr) return;
  auto bytes = static_cast<std::uint32_t>(data.size());
  if (cta.checks && !b->is_published) {
    cta.launch.findings.add(kind::kMbarrierFence, ins, [&] {
      return "completes on the mbarrier at shared+" + std::to_string(barrier) +
             ", whose initialisation no fence.mbarrier_init or fence.proxy.async followed, " +
             cta.describe(warp, lane);
    });
  }
  if (cta.checks) {
    SharedShadow::AsyncAgent by{b->agent, cta.async->clock_of(b->agent) + 1};
    cta.shadow.begin_async_write(cta.shared_access(warp, ins), lane, by, to, bytes);
  }
  std::memset(cta.shared.data() + to, 0xff, bytes);
  cta.async->loads.push_back({&ins, to, static_cast<std::uint32_t>(barrier), std::move(data)});
}

void land_load(Cta& cta, std::uint32_t k) {
  std::vector<BulkLoad>& loads = cta.async->loads;
  BulkLoad load = std::move(loads[k]);
  loads.erase(loads.begin() + k);
  auto bytes = static_cast<std::uint32_t>(load.data.size());
  std::memcpy(cta.shared.data() + load.to, load.data.data(), bytes);
  auto it = cta.async->barriers.find(load.barrier);
  if (cta.checks && it != cta.async->barriers.end()) {
    std::uint32_t agent = it->second.agent;
    cta.shadow.end_async_write({agent, cta.async->clock_of(agent) + 1}, load.to, bytes);
  }
  complete_bytes(cta, load.barrier, bytes);
}

void finish_copies(Cta& cta) {
  Launch& launch = cta.launch;
  for (const BulkLoad& load : cta.async->loads) {
    launch.findings.add(kind::kUnfinishedCopy, *load.ins, [&] {
      return "the CTA ends while " + std::to_string(load.data.size()) +
             " bytes are on their way to shared+" + std::to_string(load.to);
    });
  }
  for (Warp& w : cta.warps) {
    for (const BulkStore& store : cta.async->warp[w.id].stores) {
      if (store.is_read) {
        write_store(cta, w, store);
        continue;
      }
      launch.findings.add(kind::kUnfinishedCopy, *store.ins, [&] {
        return "the CTA ends before " + std::to_string(store.bytes) + " bytes of shared+" +
               std::to_string(store.from) + " were waited for";
      });
    }
  }
}

void exec_bulk_load(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask) {
  GlobalAccess access = cta.global_access(warp, ins);
  each_lane(mask, [&](int l) {
    std::uint64_t to = shared_operand(warp, ins, 0, l), from = operand64(warp, ins, 1, l);
    std::uint32_t bytes = operand32(warp, ins, 2, l);
    if (!is_plain_copy(cta, warp, ins, l, from, to, bytes)) return;
    std::vector<std::byte> data(bytes);
    read_global(cta, access, l, from, bytes, data.data());
    count_bulk(cta, from, bytes, false);
    issue_load(cta, warp, ins, l, shared_operand(warp, ins, 3, l), static_cast<std::uint32_t>(to),
               std::move(data));
  });
}

void issue_store(Cta& cta, Warp& warp, const Ins& ins, int lane, std::uint32_t from,
                 std::uint32_t bytes, std::vector<BulkStore::Piece> pieces) {
  AsyncWarp& w = cta.async->warp[warp.id];
  BulkStore s;
  s.ins = &ins;
  s.lane = lane;
  s.group = w.store_group[static_cast<std::size_t>(lane)];
  s.from = from;
  s.bytes = bytes;
  s.pieces = std::move(pieces);
  s.read_clock = cta.async->tick(cta.async->read_agent(warp.id));
  s.write_clock = cta.async->tick(cta.async->write_agent(warp.id));
  if (cta.checks) {
    cta.shadow.async_read(cta.shared_access(warp, ins), lane,
                          {cta.async->read_agent(warp.id), s.read_clock}, warp.clock.proxied.own(),
                          from, bytes);
  }
  claim_target(cta, warp, s);
  w.stores.push_back(std::move(s));
}

void exec_bulk_store(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask) {
  each_lane(mask, [&](int l) {
    std::uint64_t to = operand64(warp, ins, 0, l), from = shared_operand(warp, ins, 1, l);
    std::uint32_t bytes = operand32(warp, ins, 2, l);
    if (!is_plain_copy(cta, warp, ins, l, to, from, bytes)) return;
    issue_store(cta, warp, ins, l, static_cast<std::uint32_t>(from), bytes, {{to, 0, bytes}});
  });
}

void exec_bulk_commit(Cta& cta, Warp& warp, const Ins&, std::uint32_t mask) {
  each_lane(mask,
            [&](int l) { ++cta.async->warp[warp.id].store_group[static_cast<std::size_t>(l)]; });
}

void exec_bulk_wait(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask) {
  AsyncWarp& w = cta.async->warp[warp.id];
  std::size_t kept = 0;
  for (std::size_t k = 0; k < w.stores.size(); ++k) {
    BulkStore& s = w.stores[k];
    bool waits = is_valid_lane(mask, s.lane) &&
                 s.group + ins.imm < w.store_group[static_cast<std::size_t>(s.lane)];
    if (waits && !s.is_read) read_store(cta, warp, s);
    if (waits && ins.detail == 0) {
      write_store(cta, warp, s);
      continue;
    }
    if (kept != k) w.stores[kept] = std::move(s);
    ++kept;
  }
  w.stores.resize(kept);
}

}  // namespace attnloom::sim
