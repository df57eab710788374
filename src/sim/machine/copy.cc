// SPDX-License-Identifier: Apache-2.0
// cp.async. The source is read when the copy is issued; the destination changes as late as the
// program allows, at the wait, and is filled with NaN until then.
#include <bit>
#include <string>

#include "sim/machine/async.h"
#include "sim/machine/counting.h"
#include "sim/machine/exec.h"
#include "sim/machine/state.h"

namespace attnloom::sim {
namespace {

std::unique_ptr<CopyBatch> take_batch(Launch& launch) {
  if (launch.spare_batches.empty()) return std::make_unique<CopyBatch>();
  std::unique_ptr<CopyBatch> batch = std::move(launch.spare_batches.back());
  launch.spare_batches.pop_back();
  return batch;
}

std::uint32_t source_bytes(Cta& cta, Warp& warp, const Ins& ins, int lane,
                           const std::uint32_t* sizes) {
  if (sizes == nullptr) return ins.count;
  std::uint32_t n = sizes[lane];
  if (n <= ins.count) return n;
  cta.launch.findings.add(kind::kBadCopySize, ins, [&] {
    return "source size " + std::to_string(n) + " of a copy of " + std::to_string(ins.count) +
           " bytes, " + cta.describe(warp, lane);
  });
  return ins.count;
}

// Reads n bytes, of which only those are checked: a zero-filled tail is not touched.
void read_source(Cta& cta, const GlobalAccess& access, int lane, std::uint64_t address,
                 std::uint32_t n, std::byte* data) {
  std::uint32_t step = std::has_single_bit(n) ? n : 1;
  for (std::uint32_t k = 0; k < n; k += step) {
    if (const std::byte* p = global_at(cta, access, lane, address + k, step, false)) {
      std::memcpy(data + k, p, step);
    } else {
      std::memset(data + k, 0xff, step);
    }
  }
}

void count_copy(Cta& cta, const Ins& ins, std::uint32_t mask, const std::uint64_t* from,
                const std::uint32_t* to, const std::uint32_t* sizes) {
  Counters& c = cta.launch.counters;
  std::uint32_t reading = mask;
  std::uint64_t moved = 0;
  for (std::uint32_t m = mask; m != 0; m &= m - 1) {
    int l = std::countr_zero(m);
    std::uint32_t n = sizes == nullptr ? ins.count : sizes[l];
    if (n == 0) reading &= ~(1u << l);
    moved += n;
  }
  std::uint32_t sectors = count_sectors(from, reading, ins.count);
  c.global_load_bytes += moved;
  c.global_load_sectors += sectors;
  c.global_fetch_sectors += sectors;
  c.copy_conflicts += count_shared(c, to, mask, ins.count);
}

void land(Cta& cta, Warp& warp, const CopyBatch& b, std::uint32_t lanes) {
  SharedAccess access = cta.shared_access(warp, *b.ins);
  for (; lanes != 0; lanes &= lanes - 1) {
    int l = std::countr_zero(lanes);
    if (cta.checks) cta.shadow.end_copy(access, l, b.to[l], b.bytes);
    std::memcpy(cta.shared.data() + b.to[l], b.data[l], b.bytes);
  }
}

// Lands the lanes of each batch that `landing(batch)` names.
template <class Landing>
void land_copies(Cta& cta, Warp& warp, Landing landing) {
  std::size_t kept = 0;
  for (std::size_t k = 0; k < warp.copies.size(); ++k) {
    CopyBatch& b = *warp.copies[k];
    std::uint32_t lanes = landing(b);
    land(cta, warp, b, lanes);
    b.mask &= ~lanes;
    if (b.mask == 0) {
      cta.launch.spare_batches.push_back(std::move(warp.copies[k]));
    } else {
      if (kept != k) warp.copies[kept] = std::move(warp.copies[k]);
      ++kept;
    }
  }
  warp.copies.resize(kept);
}

}  // namespace

void exec_copy(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask) {
  const std::uint32_t* sizes =
      ins.o[2] == kNone ? nullptr
                        : reinterpret_cast<const std::uint32_t*>(warp.registers + ins.o[2]);
  const auto* source = reinterpret_cast<const std::uint64_t*>(warp.registers + ins.o[1]);
  std::uint64_t from[kLanes];
  std::uint32_t to[kLanes];
  for (int l = 0; l < kLanes; ++l) from[l] = source[l] + static_cast<std::uint64_t>(ins.imm);
  for (int l = 0; l < kLanes; ++l) {
    to[l] = ins.address_is_64
                ? static_cast<std::uint32_t>(
                      reinterpret_cast<const std::uint64_t*>(warp.registers + ins.o[0])[l])
                : reinterpret_cast<const std::uint32_t*>(warp.registers + ins.o[0])[l];
    to[l] += ins.target;
  }
  count_copy(cta, ins, mask, from, to, sizes);
  GlobalAccess global = cta.global_access(warp, ins);
  SharedAccess shared = cta.shared_access(warp, ins);
  CopyBatch* batch = nullptr;
  for (std::uint32_t m = mask; m != 0; m &= m - 1) {
    int l = std::countr_zero(m);
    if (to[l] + ins.count > cta.shared_bytes || to[l] % ins.count != 0) {
      shared_at(cta, shared, l, to[l], ins.count, true);  // reports what is wrong
      continue;
    }
    // Lanes commit on their own: those that stand at another group get a batch of their own.
    if (batch == nullptr || batch->group != warp.copy_group[static_cast<std::size_t>(l)]) {
      warp.copies.push_back(take_batch(cta.launch));
      batch = warp.copies.back().get();
      batch->mask = 0;
      batch->group = warp.copy_group[static_cast<std::size_t>(l)];
      batch->bytes = ins.count;
      batch->ins = &ins;
      batch->number = warp.copy_batches++;
    }
    std::uint32_t n = source_bytes(cta, warp, ins, l, sizes);
    if (n < 16) std::memset(batch->data[l], 0, 16);
    read_source(cta, global, l, from[l], n, batch->data[l]);
    if (cta.checks) cta.shadow.begin_copy(shared, l, to[l], ins.count);
    std::memset(cta.shared.data() + to[l], 0xff, ins.count);
    batch->to[l] = to[l];
    batch->mask |= 1u << l;
  }
}

void exec_copy_commit(Cta&, Warp& warp, const Ins&, std::uint32_t mask) {
  for (; mask != 0; mask &= mask - 1)
    ++warp.copy_group[static_cast<std::size_t>(std::countr_zero(mask))];
}

void exec_copy_wait(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask) {
  land_copies(cta, warp, [&](const CopyBatch& b) {
    std::uint32_t landing = 0;
    for (std::uint32_t m = b.mask & mask; m != 0; m &= m - 1) {
      auto l = static_cast<std::size_t>(std::countr_zero(m));
      // A copy that was never committed is in no group, and only wait_all waits for it.
      if (ins.imm < 0 || b.group + ins.imm < warp.copy_group[l]) landing |= 1u << l;
    }
    return landing;
  });
}

void exec_copy_arrive(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask) {
  CopyArrival a;
  a.ins = &ins;
  a.warp = warp.id;
  a.before = warp.copy_batches;
  a.clock = warp.clock;
  each_lane(mask, [&](int l) {
    std::uint64_t address = shared_operand(warp, ins, 0, l);
    Mbarrier* b = find_mbarrier(cta, warp, ins, l, address);
    if (b == nullptr) return;
    // Without .noinc the phase waits for one arrival more than its count.
    if (ins.detail == 0) ++b->pending;
    a.lanes |= 1u << l;
    a.barrier[static_cast<std::size_t>(l)] = static_cast<std::uint32_t>(address);
  });
  if (a.lanes != 0) cta.async->arrivals.push_back(std::move(a));
  if (cta.checks) cta.advance(warp);
}

void land_arrival(Cta& cta, std::uint32_t k) {
  std::vector<CopyArrival>& arrivals = cta.async->arrivals;
  CopyArrival a = std::move(arrivals[k]);
  arrivals.erase(arrivals.begin() + k);
  Warp& warp = cta.warps[a.warp];
  land_copies(cta, warp,
              [&](const CopyBatch& b) { return b.number < a.before ? b.mask & a.lanes : 0; });
  // What landed carries the warp's clock of now, so that is what the arrival releases.
  if (cta.checks) a.clock.known.own(warp.id) = warp.clock.known.own(warp.id);
  each_lane(a.lanes, [&](int l) {
    arrive_late(cta, warp, *a.ins, l, a.barrier[static_cast<std::size_t>(l)], a.clock);
  });
  if (cta.checks) cta.advance(warp);
}

}  // namespace attnloom::sim
