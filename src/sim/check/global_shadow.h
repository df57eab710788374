// SPDX-License-Identifier: Apache-2.0
// Happens-before in global memory during one launch. Launches are ordered, so nothing is kept
// between them.
//
// Writers are exact, byte by byte: for each 4-byte word the last write (agent, clock, bytes), in
// pages that exist only where the launch wrote. Readers are two records for each 16 bytes, chosen
// so that a reader that is already ordered before the newest is forgotten first: with three and
// more unordered readers a race of a later write may be pinned on another reader than the first,
// and in mixed cases be missed; nothing false is reported.
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
  bool is_strong = false;
};

class GlobalShadow {
 public:
  void read(const GlobalAccess& a, int lane, const Allocation& allocation, std::size_t offset,
            std::uint32_t bytes) {
    if (allocation.id != last_id_) choose(allocation);
    WritePage* written = last_->written[offset / kPageBytes].get();
    ReadPage* page = last_->read[offset / kPageBytes].get();
    if (written != nullptr || page == nullptr || bytes != 16)
      return read_slow(a, lane, allocation, offset, bytes);
    std::size_t g = offset / 16 % (kPageBytes / 16);
    Reader* r = page->reader[g];
    int slot = r[0].agent == a.agent || r[0].clock == 0   ? 0
               : r[1].agent == a.agent || r[1].clock == 0 ? 1
                                                          : -1;
    if (slot < 0) return record_reader(a, *page, offset, bytes);
    r[slot] = {a.agent, a.clock};
    page->bytes[g][slot] = 0xffff;
  }
  void write(const GlobalAccess& a, int lane, const Allocation& allocation, std::size_t offset,
             std::uint32_t bytes);
  SyncTable& sync() { return sync_; }

 private:
  static constexpr std::size_t kPageBytes = 4096;
  static constexpr std::uint32_t kSplitAgent = ~0u;
  struct Cell {
    std::uint32_t agent = 0;
    std::uint32_t clock : 28 = 0;  // 0: not written in this launch
    std::uint32_t bytes : 4 = 0;
    const Ins* ins = nullptr;
  };
  struct Split {
    Cell byte[4];
  };
  struct WritePage {
    Cell cell[kPageBytes / 4];
  };
  struct Reader {
    std::uint32_t agent = 0;
    std::uint32_t clock = 0;
  };
  struct ReadPage {
    Reader reader[kPageBytes / 16][2];
    std::uint16_t bytes[kPageBytes / 16][2];
  };
  struct Pages {
    std::vector<std::unique_ptr<WritePage>> written;
    std::vector<std::unique_ptr<ReadPage>> read;
  };

  void choose(const Allocation& allocation);  // sets last_
  void read_slow(const GlobalAccess& a, int lane, const Allocation& allocation, std::size_t offset,
                 std::uint32_t bytes);
  bool ordered(const GlobalAccess& a, std::uint32_t agent, std::uint32_t clock) const;
  bool conflicts(const GlobalAccess& a, const Cell& cell, std::uint32_t mask) const;
  void check_cells(const GlobalAccess& a, int lane, const Allocation& allocation,
                   std::size_t offset, std::uint32_t bytes, WritePage& page, const char* what);
  void check_readers(const GlobalAccess& a, int lane, const Allocation& allocation,
                     std::size_t offset, std::uint32_t bytes, ReadPage& page);
  void set_cell(const GlobalAccess& a, Cell& cell, std::uint64_t word, std::uint32_t mask);
  void record_reader(const GlobalAccess& a, ReadPage& page, std::size_t offset,
                     std::uint32_t bytes);
  void race(const GlobalAccess& a, int lane, const Allocation& allocation, std::size_t offset,
            const char* what, std::uint32_t agent, const Ins* other);

  std::vector<std::unique_ptr<Pages>> pages_;  // by Allocation::id
  Pages* last_ = nullptr;
  std::uint32_t last_id_ = ~0u;
  std::unordered_map<std::uint64_t, Split> split_;  // by address / 4
  SyncTable sync_;
};

}  // namespace attnloom::sim
