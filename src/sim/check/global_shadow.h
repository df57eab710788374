// SPDX-License-Identifier: Apache-2.0
// Happens-before in global memory during one launch. Launches are ordered, so nothing is kept
// between them.
//
// Writers are exact, byte by byte: for each granule of 16 bytes the last write (agent, clock,
// bytes), in pages that exist only where the launch wrote; bytes of a granule that differ go to a
// side table. Readers are two records for each granule, chosen so that a reader that is already
// ordered before the newest is forgotten first: with three and more unordered readers a race of a
// later write may be pinned on another reader than the first, and in mixed cases be missed; nothing
// false is reported.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "sim/check/sync.h"
#include "sim/ins.h"
#include "sim/machine/memory.h"

namespace attnloom::sim {

struct GlobalAccess {
  Cta& cta;
  Warp& warp;
  const Ins& ins;
  const ClockFrame& frame;
  const VectorClock& known;
  std::uint32_t agent = 0;  // of the launch
  std::uint32_t clock = 0;
  std::uint32_t ins_index = 0;
  bool is_strong = false;
  // The agent last found in `known`, and up to which clock: lanes of one instruction mostly meet
  // the same writer. Knowledge only grows, so it stays true.
  mutable std::uint32_t met_agent = ~0u;
  mutable std::uint32_t met_clock = 0;
};

class GlobalShadow {
 public:
  void read(const GlobalAccess& a, int lane, const Allocation& allocation, std::size_t offset,
            std::uint32_t bytes) {
    if (allocation.id != last_id_) choose(allocation);
    ReadPage* page = last_->read[offset / kPageBytes].get();
    if (page == nullptr || bytes > kGranuleBytes)
      return read_slow(a, lane, allocation, offset, bytes);
    std::size_t g = granule(offset);
    std::uint32_t mask = byte_mask(offset, bytes);
    if (WritePage* written = last_->written[offset / kPageBytes].get())
      check_writer(a, lane, allocation, offset, mask, written->cell[g], kReadAfterWrite);
    Reader* r = page->reader[g];
    int slot = r[0].agent == a.agent || r[0].clock == 0   ? 0
               : r[1].agent == a.agent || r[1].clock == 0 ? 1
                                                          : -1;
    if (slot < 0 || mask != 0xffff) return record_reader(a, *page, g, mask);
    r[slot] = {a.agent, a.clock};
    page->bytes[g][slot] = 0xffff;
  }
  void write(const GlobalAccess& a, int lane, const Allocation& allocation, std::size_t offset,
             std::uint32_t bytes) {
    if (allocation.id != last_id_) choose(allocation);
    WritePage* page = last_->written[offset / kPageBytes].get();
    if (page == nullptr || bytes > kGranuleBytes)
      return write_slow(a, lane, allocation, offset, bytes);
    write_granule(a, lane, allocation, offset, byte_mask(offset, bytes), *page);
  }
  SyncTable& sync() { return sync_; }

 private:
  static constexpr std::size_t kPageBytes = 4096;
  static constexpr std::size_t kGranuleBytes = 16;
  static constexpr std::size_t kGranules = kPageBytes / kGranuleBytes;
  static constexpr std::uint32_t kSplitAgent = ~0u;
  static constexpr const char* kReadAfterWrite = "read, not ordered after the write of";
  struct Cell {
    std::uint32_t agent = 0;  // kSplitAgent: see split_
    std::uint32_t clock = 0;  // 0: not written in this launch
    std::uint32_t ins = 0;    // index in the kernel
    std::uint32_t bytes = 0;  // bits
  };
  struct Split {
    Cell byte[kGranuleBytes];
  };
  struct WritePage {
    Cell cell[kGranules];
  };
  struct Reader {
    std::uint32_t agent = 0;
    std::uint32_t clock = 0;
  };
  struct ReadPage {
    Reader reader[kGranules][2];
    std::uint16_t bytes[kGranules][2];
  };
  struct Pages {
    std::vector<std::unique_ptr<WritePage>> written;
    std::vector<std::unique_ptr<ReadPage>> read;
  };

  static std::size_t granule(std::size_t offset) { return offset / kGranuleBytes % kGranules; }
  // Accesses are aligned powers of two, so one of up to 16 bytes lies in one granule.
  static std::uint32_t byte_mask(std::size_t offset, std::uint32_t bytes) {
    return ((1u << bytes) - 1) << (offset % kGranuleBytes);
  }

  bool ordered(const GlobalAccess& a, std::uint32_t agent, std::uint32_t clock) const {
    if (agent == a.agent || (agent == a.met_agent && clock <= a.met_clock)) return true;
    return ordered_slow(a, agent, clock);
  }
  void check_writer(const GlobalAccess& a, int lane, const Allocation& allocation,
                    std::size_t offset, std::uint32_t mask, const Cell& cell, const char* what) {
    if ((cell.bytes & mask) == 0) return;
    if (cell.agent != kSplitAgent && ordered(a, cell.agent, cell.clock)) return;
    check_writer_slow(a, lane, allocation, offset, mask, cell, what);
  }
  void write_granule(const GlobalAccess& a, int lane, const Allocation& allocation,
                     std::size_t offset, std::uint32_t mask, WritePage& page) {
    std::size_t g = granule(offset);
    Cell& cell = page.cell[g];
    check_writer(a, lane, allocation, offset, mask, cell, "write, not ordered after the write of");
    if (ReadPage* readers = last_->read[offset / kPageBytes].get()) {
      for (int k = 0; k < 2; ++k) {
        const Reader& r = readers->reader[g][k];
        if ((readers->bytes[g][k] & mask) != 0 && !ordered(a, r.agent, r.clock)) {
          race(a, lane, allocation, offset, "write, not ordered after the read of", r.agent, ~0u);
          break;
        }
      }
    }
    if (cell.agent == a.agent && cell.clock == a.clock) {
      cell.bytes |= mask;
    } else if (cell.agent == kSplitAgent || (cell.bytes & ~mask) != 0) {
      split(a, cell, (allocation.base + offset) / kGranuleBytes, mask);
    } else {
      cell = {a.agent, a.clock, a.ins_index, mask};
    }
  }

  void choose(const Allocation& allocation);  // sets last_
  void read_slow(const GlobalAccess& a, int lane, const Allocation& allocation, std::size_t offset,
                 std::uint32_t bytes);
  void write_slow(const GlobalAccess& a, int lane, const Allocation& allocation, std::size_t offset,
                  std::uint32_t bytes);
  bool ordered_slow(const GlobalAccess& a, std::uint32_t agent, std::uint32_t clock) const;
  void check_writer_slow(const GlobalAccess& a, int lane, const Allocation& allocation,
                         std::size_t offset, std::uint32_t mask, const Cell& cell,
                         const char* what);
  void split(const GlobalAccess& a, Cell& cell, std::uint64_t key, std::uint32_t mask);
  void record_reader(const GlobalAccess& a, ReadPage& page, std::size_t g, std::uint32_t mask);
  void race(const GlobalAccess& a, int lane, const Allocation& allocation, std::size_t offset,
            const char* what, std::uint32_t agent, std::uint32_t other_ins);

  std::vector<std::unique_ptr<Pages>> pages_;  // by Allocation::id
  Pages* last_ = nullptr;
  std::uint32_t last_id_ = ~0u;
  std::unordered_map<std::uint64_t, Split> split_;  // by address / 16
  SyncTable sync_;
};

}  // namespace attnloom::sim
