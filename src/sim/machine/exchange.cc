// SPDX-License-Identifier: Apache-2.0
// shfl, vote, match, redux and the other exchanges between lanes of a warp.
#include <bit>
#include <string>

#include "sim/machine/exec.h"
#include "sim/machine/state.h"

namespace attnloom::sim {
namespace {

std::uint32_t* row32(Warp& w, std::uint32_t offset) {
  return reinterpret_cast<std::uint32_t*>(w.registers + offset);
}

std::uint32_t& predicate(Warp& w, std::uint32_t offset) {
  return *row32(w, offset);
}

void write_predicate(Warp& w, std::uint32_t offset, std::uint32_t mask, std::uint32_t value) {
  if (offset == kNone) return;
  std::uint32_t& p = predicate(w, offset);
  p = (p & ~mask) | (value & mask);
}

template <class F>
void each(std::uint32_t mask, F f) {
  for (; mask != 0; mask &= mask - 1) f(std::countr_zero(mask));
}

// Every lane that executes must name itself, and no lane that does not.
void check_members(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask,
                   const std::uint32_t* members) {
  std::uint32_t first = members[std::countr_zero(mask)];
  bool same = true;
  each(mask, [&](int l) { same = same && members[l] == first; });
  if (same && first == mask) return;
  bool missing = false;
  each(mask, [&](int l) {
    missing = missing || (members[l] & ~mask) != 0 || (members[l] >> l & 1) == 0;
  });
  if (!missing) return;
  cta.launch.findings.add(kind::kInactiveLanes, ins, [&] {
    return "member mask " + std::to_string(first) + " but the lanes here are " +
           std::to_string(mask) + ", " + cta.describe(warp, -1);
  });
}

struct Source {
  int lane;
  bool in_range;
};

Source shuffle_source(int mode, int lane, std::uint32_t b, std::uint32_t c) {
  int segment = static_cast<int>(c >> 8 & 31), clamp = static_cast<int>(c & 31),
      delta = static_cast<int>(b & 31);
  int most = (lane & segment) | (clamp & ~segment), least = lane & segment;
  int from = lane;
  switch (mode) {
    case 0:
      from = lane - delta;
      return {from, from >= most};
    case 1:
      from = lane + delta;
      return {from, from <= most};
    case 2:
      from = lane ^ delta;
      return {from, from <= most};
    default:
      from = least | (delta & ~segment);
      return {from, from <= most};
  }
}

}  // namespace

void exec_shuffle(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask) {
  const std::uint32_t *a = row32(warp, ins.more[2]), *b = row32(warp, ins.more[3]),
                      *c = row32(warp, ins.more[4]);
  check_members(cta, warp, ins, mask, row32(warp, ins.more[5]));
  std::uint32_t result[kLanes], in_range = 0;
  each(mask, [&](int l) {
    Source s = shuffle_source(ins.detail, l, b[l], c[l]);
    if (!s.in_range) s.lane = l;
    in_range |= std::uint32_t{s.in_range} << l;
    result[l] = a[s.lane];
    if ((mask >> s.lane & 1) != 0) return;
    result[l] = ~0u;
    cta.launch.findings.add(kind::kInactiveLanes, ins, [&] {
      return "reads lane " + std::to_string(s.lane) +
             ", which is not here: " + cta.describe(warp, l);
    });
  });
  std::uint32_t* d = row32(warp, ins.more[0]);
  each(mask, [&](int l) { d[l] = result[l]; });
  write_predicate(warp, ins.more[1], mask, in_range);
}

void exec_vote(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask) {
  std::uint32_t p = predicate(warp, ins.more[1]);
  const std::uint32_t* members = row32(warp, ins.more[2]);
  check_members(cta, warp, ins, mask, members);
  std::uint32_t bits = 0;
  std::uint32_t ballot[kLanes];
  each(mask, [&](int l) {
    std::uint32_t m = members[l] & mask, yes = p & m;
    ballot[l] = yes;
    bool result = ins.detail == 0 ? yes == m : ins.detail == 1 ? yes != 0 : yes == m || yes == 0;
    bits |= std::uint32_t{result} << l;
  });
  if (ins.detail != 3) return write_predicate(warp, ins.more[0], mask, bits);
  std::uint32_t* d = row32(warp, ins.more[0]);
  each(mask, [&](int l) { d[l] = ballot[l]; });
}

void exec_match(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask) {
  const std::uint32_t* members = row32(warp, ins.more[3]);
  check_members(cta, warp, ins, mask, members);
  auto value = [&](int l) {
    std::uint64_t v = 0;
    std::memcpy(&v, warp.registers + ins.more[2] + l * ins.register_bytes, ins.register_bytes);
    return v;
  };
  std::uint32_t result[kLanes], all = 0;
  each(mask, [&](int l) {
    std::uint32_t same = 0;
    each(members[l] & mask,
         [&](int other) { same |= std::uint32_t{value(other) == value(l)} << other; });
    bool everybody = same == (members[l] & mask);
    result[l] = ins.detail == 0 ? same : everybody ? same : 0;
    all |= std::uint32_t{everybody} << l;
  });
  std::uint32_t* d = row32(warp, ins.more[0]);
  each(mask, [&](int l) { d[l] = result[l]; });
  write_predicate(warp, ins.more[1], mask, all);
}

void exec_reduce(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask) {
  const std::uint32_t *a = row32(warp, ins.more[1]), *members = row32(warp, ins.more[2]);
  check_members(cta, warp, ins, mask, members);
  bool is_signed_type = is_signed(ins.type);
  auto less = [&](std::uint32_t x, std::uint32_t y) {
    return is_signed_type ? static_cast<std::int32_t>(x) < static_cast<std::int32_t>(y) : x < y;
  };
  std::uint32_t result[kLanes];
  each(mask, [&](int l) {
    std::uint32_t m = members[l] & mask, r = a[std::countr_zero(m)];
    each(m & (m - 1), [&](int other) {
      switch (static_cast<AtomicOp>(ins.flags)) {
        case AtomicOp::kAdd:
          r += a[other];
          break;
        case AtomicOp::kMin:
          r = less(a[other], r) ? a[other] : r;
          break;
        case AtomicOp::kMax:
          r = less(r, a[other]) ? a[other] : r;
          break;
        case AtomicOp::kAnd:
          r &= a[other];
          break;
        case AtomicOp::kOr:
          r |= a[other];
          break;
        default:
          r ^= a[other];
          break;
      }
    });
    result[l] = r;
  });
  std::uint32_t* d = row32(warp, ins.more[0]);
  each(mask, [&](int l) { d[l] = result[l]; });
}

void exec_active_mask(Cta&, Warp& warp, const Ins& ins, std::uint32_t mask) {
  std::uint32_t* d = row32(warp, ins.more[0]);
  each(mask, [&](int l) { d[l] = mask; });
}

// Memory of one warp is not checked lane against lane, so the barrier only has to be complete.
void exec_warp_barrier(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask) {
  check_members(cta, warp, ins, mask, row32(warp, ins.more[0]));
  if (cta.checks) cta.advance(warp);  // the lanes may now read what the others wrote
}

void exec_elect(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask) {
  check_members(cta, warp, ins, mask, row32(warp, ins.more[2]));
  auto leader = static_cast<std::uint32_t>(std::countr_zero(mask));
  std::uint32_t* d = row32(warp, ins.more[0]);
  each(mask, [&](int l) { d[l] = leader; });
  write_predicate(warp, ins.more[1], mask, 1u << leader);
}

void exec_clock(Cta&, Warp& warp, const Ins& ins, std::uint32_t mask) {
  each(mask, [&](int l) {
    std::uint64_t now = warp.executed;
    std::memcpy(warp.registers + ins.more[0] + l * ins.register_bytes, &now, ins.register_bytes);
  });
}

void exec_trap(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask) {
  cta.launch.findings.add(kind::kTrap, ins, [&] {
    return "trap executed, " + cta.describe(warp, std::countr_zero(mask));
  });
}

void exec_is_space(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask) {
  const auto* a = reinterpret_cast<const std::uint64_t*>(warp.registers + ins.more[1]);
  std::uint32_t result = 0;
  each(mask, [&](int l) {
    auto inside = [&](std::uint64_t base) { return a[l] >= base && a[l] - base < kWindowBytes; };
    bool yes = ins.space == Space::kShared  ? inside(kSharedWindow)
               : ins.space == Space::kLocal ? inside(kLocalWindow)
               : ins.space == Space::kParam
                   ? inside(kParamWindow)
                   : a[l] < kLocalWindow && cta.launch.memory.find(a[l]) != nullptr;
    result |= std::uint32_t{yes} << l;
  });
  write_predicate(warp, ins.more[0], mask, result);
}

}  // namespace attnloom::sim
