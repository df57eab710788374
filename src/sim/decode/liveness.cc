// SPDX-License-Identifier: Apache-2.0
#include "sim/decode/liveness.h"

#include <algorithm>

namespace attnloom::sim {
namespace {

using Bits = std::vector<std::uint64_t>;

struct Block {
  std::uint32_t begin = 0, end = 0;  // drafts
  std::vector<std::uint32_t> successors;
  Bits used, defined, in, out;
};

class Liveness {
 public:
  Liveness(std::span<const Slot> slots, std::span<const Draft> drafts,
           std::span<const std::uint32_t> operands)
      : slots_(slots), drafts_(drafts), operands_(operands) {}

  std::vector<LiveRange> run() {
    find_blocks();
    for (Block& b : blocks_) scan(b);
    iterate();
    return ranges();
  }

 private:
  // f(slot, is_output) for each value that the draft mentions.
  template <class F>
  void each(const Draft& d, F f) const {
    if (d.ins.guard != kNone) f(d.ins.guard, false);
    for (std::uint32_t k = 0; k < std::uint32_t{d.outputs} + d.inputs; ++k) {
      std::uint32_t slot = operands_[d.first + k];
      if (slot != kNone && slots_[slot].kind == Slot::Kind::kValue) f(slot, k < d.outputs);
    }
  }

  void find_blocks() {
    std::vector<bool> leader(drafts_.size() + 1, false);
    leader[0] = true;
    for (std::size_t pc = 0; pc < drafts_.size(); ++pc) {
      const Draft& d = drafts_[pc];
      bool jumps = d.ins.kind == InsKind::kBranch || d.ins.kind == InsKind::kBranchTable ||
                   d.ins.kind == InsKind::kExit;
      if (jumps) leader[pc + 1] = true;
      if (d.ins.kind == InsKind::kBranch) leader[d.ins.target] = true;
      for (std::uint32_t target : d.table) leader[target] = true;
    }
    std::vector<std::uint32_t> block_of(drafts_.size() + 1, 0);
    for (std::uint32_t pc = 0; pc < drafts_.size(); ++pc) {
      if (leader[pc]) blocks_.push_back({pc, pc, {}, {}, {}, {}, {}});
      blocks_.back().end = pc + 1;
      block_of[pc] = static_cast<std::uint32_t>(blocks_.size() - 1);
    }
    for (Block& b : blocks_) {
      const Draft& last = drafts_[b.end - 1];
      bool falls = true;
      if (last.ins.kind == InsKind::kBranch) {
        b.successors.push_back(block_of[last.ins.target]);
        falls = last.ins.guard != kNone;
      } else if (last.ins.kind == InsKind::kBranchTable || last.ins.kind == InsKind::kExit) {
        for (std::uint32_t target : last.table) b.successors.push_back(block_of[target]);
        falls = last.ins.guard != kNone;
      }
      if (falls && b.end < drafts_.size()) b.successors.push_back(block_of[b.end]);
    }
  }

  static bool test(const Bits& bits, std::uint32_t k) {
    return (bits[k / 64] >> (k % 64) & 1) != 0;
  }
  static void set(Bits& bits, std::uint32_t k) { bits[k / 64] |= std::uint64_t{1} << (k % 64); }

  void scan(Block& b) const {
    std::size_t words = (slots_.size() + 63) / 64;
    b.used.assign(words, 0);
    b.defined.assign(words, 0);
    b.in.assign(words, 0);
    b.out.assign(words, 0);
    for (std::uint32_t pc = b.begin; pc < b.end; ++pc) {
      const Draft& d = drafts_[pc];
      each(d, [&](std::uint32_t slot, bool output) {
        if (!output && !test(b.defined, slot)) set(b.used, slot);
      });
      // A guarded write keeps the old value of some lanes, so it ends nothing.
      if (d.ins.guard != kNone) continue;
      each(d, [&](std::uint32_t slot, bool output) {
        if (output) set(b.defined, slot);
      });
    }
  }

  void iterate() {
    for (bool changed = true; changed;) {
      changed = false;
      for (std::size_t k = blocks_.size(); k-- > 0;) {
        Block& b = blocks_[k];
        for (std::size_t w = 0; w < b.out.size(); ++w) {
          std::uint64_t out = 0;
          for (std::uint32_t s : b.successors) out |= blocks_[s].in[w];
          std::uint64_t in = b.used[w] | (out & ~b.defined[w]);
          changed = changed || in != b.in[w];
          b.out[w] = out;
          b.in[w] = in;
        }
      }
    }
  }

  std::vector<LiveRange> ranges() const {
    std::vector<LiveRange> all(slots_.size());
    auto touch = [&](std::uint32_t slot, std::uint32_t pc) {
      all[slot].slot = slot;
      all[slot].begin = std::min(all[slot].begin, pc);
      all[slot].end = std::max(all[slot].end, pc);
    };
    for (const Block& b : blocks_) {
      for (std::uint32_t slot = 0; slot < slots_.size(); ++slot) {
        if (test(b.in, slot)) touch(slot, b.begin);
        if (test(b.out, slot)) touch(slot, b.end - 1);
      }
      for (std::uint32_t pc = b.begin; pc < b.end; ++pc) {
        each(drafts_[pc], [&](std::uint32_t slot, bool) { touch(slot, pc); });
      }
    }
    std::erase_if(all, [](const LiveRange& r) { return r.begin == kNone; });
    std::sort(all.begin(), all.end(), [](const LiveRange& a, const LiveRange& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.slot < b.slot;
    });
    return all;
  }

  std::span<const Slot> slots_;
  std::span<const Draft> drafts_;
  std::span<const std::uint32_t> operands_;
  std::vector<Block> blocks_;
};

}  // namespace

std::vector<LiveRange> live_ranges(std::span<const Slot> slots, std::span<const Draft> drafts,
                                   std::span<const std::uint32_t> operands) {
  return Liveness(slots, drafts, operands).run();
}

}  // namespace attnloom::sim
