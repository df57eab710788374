// SPDX-License-Identifier: Apache-2.0
// Slots to rows of the register file, drafts to instructions.
#include <algorithm>
#include <map>
#include <queue>

#include "sim/decode/liveness.h"

namespace attnloom::sim {
namespace {

constexpr std::uint32_t kRowAlign = 64;

std::uint32_t row_bytes(std::uint8_t lane_bytes) {
  return lane_bytes == 1 ? 4 : lane_bytes * kLanes;
}

// Hands out rows; predicates are 4 bytes each and come in blocks.
class RowAllocator {
 public:
  std::uint32_t take(std::uint8_t lane_bytes) {
    std::vector<std::uint32_t>& free = free_[lane_bytes];
    if (free.empty()) {
      std::uint32_t bytes = std::max(row_bytes(lane_bytes), kRowAlign);
      for (std::uint32_t at = bytes; at > 0; at -= row_bytes(lane_bytes))
        free.push_back(end_ + at - row_bytes(lane_bytes));
      end_ += bytes;
    }
    std::uint32_t offset = free.back();
    free.pop_back();
    return offset;
  }
  void give(std::uint8_t lane_bytes, std::uint32_t offset) { free_[lane_bytes].push_back(offset); }
  std::uint32_t end() const { return end_; }

 private:
  std::map<std::uint8_t, std::vector<std::uint32_t>> free_;
  std::uint32_t end_ = 0;
};

// Linear scan: a row is free again after the last mention of its value.
void assign_values(std::span<const Slot> slots, const std::vector<LiveRange>& ranges,
                   RowAllocator& rows, std::vector<std::uint32_t>& offset) {
  struct Active {
    std::uint32_t end, slot;
    bool operator>(const Active& other) const {
      return end != other.end ? end > other.end : slot > other.slot;
    }
  };
  std::priority_queue<Active, std::vector<Active>, std::greater<>> active;
  for (const LiveRange& r : ranges) {
    while (!active.empty() && active.top().end < r.begin) {
      std::uint32_t slot = active.top().slot;
      rows.give(slots[slot].bytes, offset[slot]);
      active.pop();
    }
    offset[r.slot] = rows.take(slots[r.slot].bytes);
    active.push({r.end, r.slot});
  }
}

}  // namespace

void Builder::extend_wgmma_waits() {
  std::sort(wgmma_slots_.begin(), wgmma_slots_.end());
  wgmma_slots_.erase(std::unique(wgmma_slots_.begin(), wgmma_slots_.end()), wgmma_slots_.end());
  for (std::uint32_t draft : wgmma_waits_) {
    drafts_[draft].first = static_cast<std::uint32_t>(operands_.size());
    drafts_[draft].inputs = static_cast<std::uint16_t>(wgmma_slots_.size());
    operands_.insert(operands_.end(), wgmma_slots_.begin(), wgmma_slots_.end());
  }
}

// What the kernel is, beside its instructions.
Kernel Builder::describe() const {
  Kernel k;
  k.name = entry_name_;
  k.threads_limit = threads_limit_;
  k.registers_limit = registers_limit_;
  k.ctas_per_sm = ctas_per_sm_;
  k.uses_async = uses_async_;
  k.uses_wgmma = uses_wgmma_;
  k.products = &select_products(isa_);
  k.parameter_bytes = parameter_bytes_;
  k.static_shared_bytes = static_cast<std::uint32_t>((shared_bytes_ + 15) / 16 * 16);
  k.local_bytes = (local_bytes_ + 15) / 16 * 16;
  return k;
}

Kernel Builder::finish() {
  Kernel k = describe();
  for (std::uint32_t slot : dynamic_shared_) {
    std::uint64_t align = slots_[slot].value;
    std::uint64_t begin = (shared_bytes_ + align - 1) / align * align;
    slots_[slot].value = begin;
    k.static_shared_bytes = std::max(k.static_shared_bytes, static_cast<std::uint32_t>(begin));
  }
  RowAllocator rows;
  std::vector<std::uint32_t> offset(slots_.size(), kNone);
  for (std::uint32_t s = 0; s < slots_.size(); ++s) {
    const Slot& slot = slots_[s];
    if (slot.kind == Slot::Kind::kValue) continue;
    offset[s] = rows.take(slot.bytes);
    if (slot.kind == Slot::Kind::kConstant)
      k.constants.push_back({offset[s], slot.bytes, slot.value});
    if (slot.kind == Slot::Kind::kSpecial)
      k.specials.push_back({offset[s], slot.bytes, static_cast<Special>(slot.value)});
    if (slot.kind == Slot::Kind::kSymbol)
      k.symbols.push_back({offset[s], slot.bytes, static_cast<std::uint32_t>(slot.value)});
  }
  extend_wgmma_waits();
  // Values must not take up what is left of a block of constant predicates.
  RowAllocator values;
  assign_values(slots_, live_ranges(slots_, drafts_, operands_), values, offset);
  k.constant_bytes = rows.end();
  k.register_bytes = rows.end() + values.end();
  for (std::uint32_t s = 0; s < slots_.size(); ++s) {
    if (slots_[s].kind == Slot::Kind::kValue && offset[s] != kNone) offset[s] += k.constant_bytes;
  }
  std::size_t pool = operands_.size();
  for (const Draft& d : drafts_) pool += d.table.size();
  k.operands.reserve(pool);  // pointers into it are kept
  for (const Draft& d : drafts_) {
    Ins ins = d.ins;
    if (ins.guard != kNone) ins.guard = offset[ins.guard];
    const std::uint32_t* begin = k.operands.data() + k.operands.size();
    std::uint32_t count = std::uint32_t{d.outputs} + d.inputs;
    for (std::uint32_t n = 0; n < count; ++n) {
      std::uint32_t slot = operands_[d.first + n];
      k.operands.push_back(slot == kNone ? kNone : offset[slot]);
    }
    ins.outputs = static_cast<std::uint8_t>(std::min<std::uint32_t>(d.outputs, 255));
    ins.operands = static_cast<std::uint8_t>(std::min<std::uint32_t>(count, 255));
    for (std::uint32_t n = 0; n < 6; ++n) ins.o[n] = n < count ? begin[n] : kNone;
    ins.more = begin;
    ins.table = k.operands.data() + k.operands.size();
    k.operands.insert(k.operands.end(), d.table.begin(), d.table.end());
    k.ins.push_back(ins);
  }
  return k;
}

}  // namespace attnloom::sim
