// SPDX-License-Identifier: Apache-2.0
#include "sim/check/global_shadow.h"

#include <string>

#include "sim/check/findings.h"
#include "sim/machine/state.h"

namespace attnloom::sim {
void GlobalShadow::choose(const Allocation& allocation) {
  if (allocation.id >= pages_.size()) pages_.resize(allocation.id + 1);
  std::unique_ptr<Pages>& p = pages_[allocation.id];
  if (p == nullptr) {
    p = std::make_unique<Pages>();
    p->written.resize(allocation.bytes / kPageBytes + 1);
    p->read.resize(allocation.bytes / kPageBytes + 1);
  }
  last_ = p.get();
  last_id_ = allocation.id;
}

bool GlobalShadow::ordered_slow(const GlobalAccess& a, std::uint32_t agent,
                                std::uint32_t clock) const {
  if (a.known.covers(a.frame, agent, clock)) {
    a.met_agent = agent;
    a.met_clock = clock;
    return true;
  }
  return a.is_strong && a.frame.is_strong(agent);  // two strong accesses do not race
}

void GlobalShadow::race(const GlobalAccess& a, int lane, const Allocation& allocation,
                        std::size_t offset, const char* what, std::uint32_t agent,
                        std::uint32_t other_ins) {
  a.cta.launch.findings.add(kind::kRaceGlobal, a.ins, [&] {
    std::string text = std::string(what) + " CTA " + std::to_string(agent / a.frame.agents) + " " +
                       a.cta.agent_name(agent % a.frame.agents);
    if (other_ins != ~0u) text += " at " + a.cta.launch.findings.place(a.cta.kernel.ins[other_ins]);
    return text + ": " + allocation.label + "+" + std::to_string(offset) + ", " +
           a.cta.describe(a.warp, lane);
  });
}

void GlobalShadow::check_writer_slow(const GlobalAccess& a, int lane, const Allocation& allocation,
                                     std::size_t offset, std::uint32_t mask, const Cell& cell,
                                     const char* what) {
  std::size_t begin = offset / kGranuleBytes * kGranuleBytes;
  if (cell.agent != kSplitAgent)
    return race(a, lane, allocation, offset, what, cell.agent, cell.ins);
  const Split& split = split_[(allocation.base + offset) / kGranuleBytes];
  for (std::size_t k = 0; k < kGranuleBytes; ++k) {
    const Cell& byte = split.byte[k];
    if ((mask >> k & 1) == 0 || byte.clock == 0 || ordered(a, byte.agent, byte.clock)) continue;
    return race(a, lane, allocation, begin + k, what, byte.agent, byte.ins);
  }
}

void GlobalShadow::record_reader(const GlobalAccess& a, ReadPage& page, std::size_t g,
                                 std::uint32_t mask) {
  Reader* r = page.reader[g];
  auto is_covered = [&](int k) {
    return r[k].clock == 0 ||
           ((page.bytes[g][k] & ~mask) == 0 && ordered(a, r[k].agent, r[k].clock));
  };
  int slot = r[0].agent == a.agent && r[0].clock != 0   ? 0
             : r[1].agent == a.agent && r[1].clock != 0 ? 1
                                                        : -1;
  if (slot >= 0) {
    // Bytes that only an older read touched are forgotten: under the new clock they would give
    // false findings.
    if (r[slot].clock == a.clock) mask |= page.bytes[g][slot];
  } else {
    slot = is_covered(0) ? 0 : is_covered(1) ? 1 : static_cast<int>(a.agent & 1);
  }
  r[slot] = {a.agent, a.clock};
  page.bytes[g][slot] = static_cast<std::uint16_t>(mask);
}

void GlobalShadow::split(const GlobalAccess& a, Cell& cell, std::uint64_t key, std::uint32_t mask) {
  if (mask == 0xffff) {
    split_.erase(key);
    cell = {a.agent, a.clock, a.ins_index, mask};
    return;
  }
  Split& split = split_[key];
  for (std::uint32_t k = 0; k < kGranuleBytes; ++k) {
    std::uint32_t bit = 1u << k;
    if ((mask & bit) != 0) {
      split.byte[k] = {a.agent, a.clock, a.ins_index, bit};
    } else if (cell.agent != kSplitAgent && (cell.bytes & bit) != 0) {
      split.byte[k] = cell;
    }
  }
  cell.agent = kSplitAgent;
  cell.clock = 0;
  cell.bytes |= mask;
}

void GlobalShadow::read_slow(const GlobalAccess& a, int lane, const Allocation& allocation,
                             std::size_t offset, std::uint32_t bytes) {
  std::unique_ptr<ReadPage>& page = last_->read[offset / kPageBytes];
  if (page == nullptr) page = std::make_unique<ReadPage>();
  for (; bytes > kGranuleBytes; bytes -= kGranuleBytes, offset += kGranuleBytes)
    read(a, lane, allocation, offset, kGranuleBytes);
  read(a, lane, allocation, offset, bytes);
}

void GlobalShadow::write_slow(const GlobalAccess& a, int lane, const Allocation& allocation,
                              std::size_t offset, std::uint32_t bytes) {
  std::unique_ptr<WritePage>& page = last_->written[offset / kPageBytes];
  if (page == nullptr) page = std::make_unique<WritePage>();
  for (; bytes > kGranuleBytes; bytes -= kGranuleBytes, offset += kGranuleBytes)
    write_granule(a, lane, allocation, offset, 0xffff, *page);
  write_granule(a, lane, allocation, offset, byte_mask(offset, bytes), *page);
}

}  // namespace attnloom::sim
