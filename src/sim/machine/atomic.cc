// SPDX-License-Identifier: Apache-2.0
// atom and red: lane after lane. Floats are added in that order, so the sum is one of those that
// the device may give.
#include <bit>
#include <cmath>
#include <string>

#include "sim/machine/counting.h"
#include "sim/machine/exec.h"
#include "sim/machine/state.h"

namespace attnloom::sim {
namespace {

template <class To, class From>
To bits_as(From from) {
  To to;
  static_assert(sizeof(To) == sizeof(From));
  std::memcpy(&to, &from, sizeof to);
  return to;
}

template <class U, class S>
U integer_result(AtomicOp op, bool is_signed_type, U old, U b, U c) {
  auto less = [&](U x, U y) {
    return is_signed_type ? static_cast<S>(x) < static_cast<S>(y) : x < y;
  };
  switch (op) {
    case AtomicOp::kAdd:
      return old + b;
    case AtomicOp::kExch:
      return b;
    case AtomicOp::kCas:
      return old == b ? c : old;
    case AtomicOp::kMin:
      return less(b, old) ? b : old;
    case AtomicOp::kMax:
      return less(old, b) ? b : old;
    case AtomicOp::kInc:
      return old >= b ? 0 : old + 1;
    case AtomicOp::kDec:
      return old == 0 || old > b ? b : old - 1;
    case AtomicOp::kAnd:
      return old & b;
    case AtomicOp::kOr:
      return old | b;
    case AtomicOp::kXor:
      return old ^ b;
  }
  return old;
}

// The units beside the L2 cache flush subnormal inputs and results; those of shared memory do not.
float float_sum(float a, float b, Space space) {
  auto flush = [space](float x) {
    bool is_subnormal = std::fpclassify(x) == FP_SUBNORMAL;
    return space == Space::kGlobal && is_subnormal ? std::copysign(0.0f, x) : x;
  };
  float sum = flush(flush(a) + flush(b));
  return std::isnan(sum) ? bits_as<float>(0x7fffffffu) : sum;
}

std::uint64_t apply(const Ins& ins, Space space, std::uint64_t old, std::uint64_t b,
                    std::uint64_t c) {
  auto op = static_cast<AtomicOp>(ins.flags & 15);
  if (ins.type == Type::kF32) {
    return bits_as<std::uint32_t>(float_sum(bits_as<float>(static_cast<std::uint32_t>(old)),
                                            bits_as<float>(static_cast<std::uint32_t>(b)), space));
  }
  if (ins.type == Type::kF64)
    return bits_as<std::uint64_t>(bits_as<double>(old) + bits_as<double>(b));
  if (ins.element_bytes == 8)
    return integer_result<std::uint64_t, std::int64_t>(op, is_signed(ins.type), old, b, c);
  return integer_result<std::uint32_t, std::int32_t>(
      op, is_signed(ins.type), static_cast<std::uint32_t>(old), static_cast<std::uint32_t>(b),
      static_cast<std::uint32_t>(c));
}

struct AtomicLane {
  Cta& cta;
  Warp& warp;
  const Ins& ins;

  std::byte* at(int lane, std::uint64_t& address, Space& space) const {
    if (space == Space::kGeneric) {
      bool shared = address >= kSharedWindow && address - kSharedWindow < kWindowBytes;
      space = shared ? Space::kShared : Space::kGlobal;
      if (shared) address -= kSharedWindow;
    }
    if (space == Space::kShared) {
      SharedAccess access = cta.shared_access(warp, ins, true);
      if (cta.checks && address + ins.element_bytes <= cta.shared_bytes &&
          address % ins.element_bytes == 0) {
        cta.shadow.read(access, lane, static_cast<std::uint32_t>(address), ins.element_bytes);
      }
      return shared_at(cta, access, lane, address, ins.element_bytes, true);
    }
    GlobalAccess access = cta.global_access(warp, ins, true);
    if (global_at(cta, access, lane, address, ins.element_bytes, false) == nullptr) return nullptr;
    return global_at(cta, access, lane, address, ins.element_bytes, true);
  }

  void synchronise(std::uint64_t address, Space space) const {
    if (!cta.checks) return;
    SyncTable& table = space == Space::kShared ? cta.shared_sync : cta.launch.shadow.sync();
    StrongAccess access{true, true, order_of(ins), scope_of(ins)};
    if (apply_strong(cta.frame, warp.clock, cta.strong_agent(warp), table[address], access))
      cta.advance(warp);
  }
};

void count(Cta& cta, const Ins& ins, Space space, const std::uint64_t* address,
           std::uint32_t mask) {
  Counters& c = cta.launch.counters;
  ++c.atomics;
  if (space == Space::kShared) return;
  c.global_store_bytes +=
      std::uint64_t{static_cast<std::uint32_t>(std::popcount(mask))} * ins.element_bytes;
  c.global_store_sectors += count_sectors(address, mask, ins.element_bytes);
}

}  // namespace

void exec_atomic(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask) {
  std::uint64_t address[kLanes];
  const std::byte* row = warp.registers + ins.more[1];
  for (int l = 0; l < kLanes; ++l) {
    address[l] = ins.address_is_64 ? reinterpret_cast<const std::uint64_t*>(row)[l]
                                   : reinterpret_cast<const std::uint32_t*>(row)[l];
    address[l] += static_cast<std::uint64_t>(ins.imm);
  }
  count(cta, ins, ins.space, address, mask);
  auto operand = [&](std::size_t k, int lane) {
    std::uint64_t v = 0;
    if (ins.more[k] != kNone)
      std::memcpy(&v, warp.registers + ins.more[k] + lane * ins.register_bytes, ins.register_bytes);
    return v;
  };
  AtomicLane atomic{cta, warp, ins};
  for (std::uint32_t m = mask; m != 0; m &= m - 1) {
    int l = std::countr_zero(m);
    Space space = ins.space;
    std::byte* p = atomic.at(l, address[l], space);
    std::uint64_t old = ~std::uint64_t{0};
    if (p != nullptr) {
      old = 0;
      std::memcpy(&old, p, ins.element_bytes);
      std::uint64_t now = apply(ins, space, old, operand(2, l), operand(3, l));
      std::memcpy(p, &now, ins.element_bytes);
      atomic.synchronise(address[l], space);
    }
    if (ins.more[0] != kNone)
      std::memcpy(warp.registers + ins.more[0] + l * ins.register_bytes, &old, ins.register_bytes);
  }
}

void exec_fence(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t) {
  if (cta.checks && apply_fence(cta.frame, warp.clock, scope_of(ins))) cta.advance(warp);
}

}  // namespace attnloom::sim
