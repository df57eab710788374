// SPDX-License-Identifier: Apache-2.0
#include "sim/check/global_shadow.h"

#include <algorithm>
#include <string>

#include "sim/check/findings.h"
#include "sim/machine/state.h"

namespace attnloom::sim {
namespace {

std::uint32_t byte_mask(std::size_t word, std::size_t offset, std::uint32_t bytes) {
  std::size_t begin = std::max(offset, word * 4) - word * 4,
              end = std::min<std::size_t>(offset + bytes, word * 4 + 4) - word * 4;
  return (1u << end) - (1u << begin);
}

}  // namespace

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

bool GlobalShadow::ordered(const GlobalAccess& a, std::uint32_t agent, std::uint32_t clock) const {
  if (agent == a.agent || a.known.covers(a.frame, agent, clock)) return true;
  return a.is_strong &&
         agent % a.frame.agents >= a.frame.agents / 2;  // two strong accesses do not race
}

void GlobalShadow::race(const GlobalAccess& a, int lane, const Allocation& allocation,
                        std::size_t offset, const char* what, std::uint32_t agent,
                        const Ins* other) {
  a.cta.launch.findings.add(kind::kRaceGlobal, a.ins, [&] {
    std::uint32_t warps = a.frame.agents / 2;
    std::string text = std::string(what) + " CTA " + std::to_string(agent / a.frame.agents) +
                       " warp " + std::to_string(agent % warps);
    if (other != nullptr) text += " at " + a.cta.launch.findings.place(*other);
    return text + ": " + allocation.label + "+" + std::to_string(offset) + ", " +
           a.cta.describe(a.warp, lane);
  });
}

bool GlobalShadow::conflicts(const GlobalAccess& a, const Cell& cell, std::uint32_t mask) const {
  return cell.clock != 0 && (cell.bytes & mask) != 0 && !ordered(a, cell.agent, cell.clock);
}

void GlobalShadow::check_cells(const GlobalAccess& a, int lane, const Allocation& allocation,
                               std::size_t offset, std::uint32_t bytes, WritePage& page,
                               const char* what) {
  for (std::size_t word = offset / 4; word <= (offset + bytes - 1) / 4; ++word) {
    const Cell& cell = page.cell[word % (kPageBytes / 4)];
    std::uint32_t mask = byte_mask(word, offset, bytes);
    if (cell.agent != kSplitAgent) {
      if (conflicts(a, cell, mask))
        return race(a, lane, allocation, word * 4, what, cell.agent, cell.ins);
      continue;
    }
    for (const Cell& byte : split_[allocation.base / 4 + word].byte) {
      if (conflicts(a, byte, mask))
        return race(a, lane, allocation, word * 4, what, byte.agent, byte.ins);
    }
  }
}

void GlobalShadow::check_readers(const GlobalAccess& a, int lane, const Allocation& allocation,
                                 std::size_t offset, std::uint32_t bytes, ReadPage& page) {
  for (std::size_t at = offset; at < offset + bytes; at = (at / 16 + 1) * 16) {
    std::size_t g = at / 16 % (kPageBytes / 16),
                end = std::min<std::size_t>(offset + bytes, (at / 16 + 1) * 16);
    std::uint32_t mask = (1u << (end - at / 16 * 16)) - (1u << at % 16);
    for (int k = 0; k < 2; ++k) {
      const Reader& r = page.reader[g][k];
      if (r.clock == 0 || (page.bytes[g][k] & mask) == 0 || ordered(a, r.agent, r.clock)) continue;
      return race(a, lane, allocation, at, "write, not ordered after the read of", r.agent,
                  nullptr);
    }
  }
}

void GlobalShadow::record_reader(const GlobalAccess& a, ReadPage& page, std::size_t offset,
                                 std::uint32_t bytes) {
  for (std::size_t at = offset; at < offset + bytes; at = (at / 16 + 1) * 16) {
    std::size_t g = at / 16 % (kPageBytes / 16),
                end = std::min<std::size_t>(offset + bytes, (at / 16 + 1) * 16);
    auto mask = static_cast<std::uint16_t>((1u << (end - at / 16 * 16)) - (1u << at % 16));
    Reader* r = page.reader[g];
    int slot = r[0].agent == a.agent && r[0].clock != 0   ? 0
               : r[1].agent == a.agent && r[1].clock != 0 ? 1
                                                          : -1;
    if (slot >= 0) {
      // Bytes that only an older read touched are forgotten: under the new clock they would give
      // false findings.
      if (r[slot].clock == a.clock) mask |= page.bytes[g][slot];
    } else if (r[0].clock == 0 ||
               (ordered(a, r[0].agent, r[0].clock) && (page.bytes[g][0] & ~mask) == 0)) {
      slot = 0;
    } else if (r[1].clock == 0 ||
               (ordered(a, r[1].agent, r[1].clock) && (page.bytes[g][1] & ~mask) == 0)) {
      slot = 1;
    } else {
      slot = static_cast<int>(a.agent & 1);
    }
    r[slot] = {a.agent, a.clock};
    page.bytes[g][slot] = mask;
  }
}

void GlobalShadow::set_cell(const GlobalAccess& a, Cell& cell, std::uint64_t word,
                            std::uint32_t mask) {
  Cell now;
  now.agent = a.agent;
  now.clock = a.clock;
  now.bytes = mask;
  now.ins = &a.ins;
  bool is_split = cell.agent == kSplitAgent;
  if (!is_split && cell.agent == now.agent && cell.clock == now.clock) {
    cell.bytes |= mask;
    return;
  }
  if (mask == 15 || (!is_split && (cell.clock == 0 || (cell.bytes & ~mask) == 0))) {
    if (is_split) split_.erase(word);
    cell = now;
    return;
  }
  Split& split = split_[word];
  for (std::uint32_t k = 0; k < 4; ++k) {
    std::uint32_t bit = 1u << k;
    if (!is_split && (cell.bytes & bit) != 0) {
      split.byte[k] = cell;
      split.byte[k].bytes = bit;
    }
    if ((mask & bit) != 0) {
      split.byte[k] = now;
      split.byte[k].bytes = bit;
    }
  }
  cell.agent = kSplitAgent;
}

void GlobalShadow::read_slow(const GlobalAccess& a, int lane, const Allocation& allocation,
                             std::size_t offset, std::uint32_t bytes) {
  Pages& p = *last_;
  if (WritePage* page = p.written[offset / kPageBytes].get()) {
    check_cells(a, lane, allocation, offset, bytes, *page, "read, not ordered after the write of");
  }
  std::unique_ptr<ReadPage>& page = p.read[offset / kPageBytes];
  if (page == nullptr) page = std::make_unique<ReadPage>();
  record_reader(a, *page, offset, bytes);
}

void GlobalShadow::write(const GlobalAccess& a, int lane, const Allocation& allocation,
                         std::size_t offset, std::uint32_t bytes) {
  if (allocation.id != last_id_) choose(allocation);
  Pages& p = *last_;
  std::unique_ptr<WritePage>& page = p.written[offset / kPageBytes];
  if (page == nullptr) page = std::make_unique<WritePage>();
  check_cells(a, lane, allocation, offset, bytes, *page, "write, not ordered after the write of");
  if (ReadPage* readers = p.read[offset / kPageBytes].get())
    check_readers(a, lane, allocation, offset, bytes, *readers);
  for (std::size_t word = offset / 4; word <= (offset + bytes - 1) / 4; ++word) {
    set_cell(a, page->cell[word % (kPageBytes / 4)], allocation.base / 4 + word,
             byte_mask(word, offset, bytes));
  }
}

}  // namespace attnloom::sim
