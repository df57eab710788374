// SPDX-License-Identifier: Apache-2.0
// f16 and bf16, single and packed: computed in double, exact or rounded to odd, then rounded once.
#include "sim/lanes/number.h"

namespace attnloom::sim::ATTNLOOM_SIM_ISA {
namespace {

struct HalfTraits {
  using Format = F16;
  static double value(u16 x) { return f16_value(x); }
};
struct Bf16Traits {
  using Format = Bf16;
  static double value(u16 x) { return bf16_value(x); }
};

double pick(double a, double b, bool take_less, bool nan) {
  if (a != a || b != b)
    return nan || (a != a && b != b) ? bits_as<double>(u64{0x7ff8} << 48) : a != a ? b : a;
  bool a_is_less = a < b || (a == b && bits_as<u64>(a) >> 63 != 0);
  return a_is_less == take_less ? a : b;
}

template <class H>
double compute(const Ins& ins, u16 x, u16 y, u16 z) {
  double a = H::value(x), b = H::value(y), c = H::value(z);
  bool nan = (ins.flags & kFlagNan) != 0;
  switch (static_cast<LaneOp>(ins.detail)) {
    case LaneOp::kAdd:
      return odd_sum(a, b);
    case LaneOp::kSub:
      return odd_sum(a, -b);
    case LaneOp::kMul:
      return a * b;
    case LaneOp::kFma:
      return odd_sum(a * b, c);
    case LaneOp::kMin:
      return pick(a, b, true, nan);
    case LaneOp::kMax:
      return pick(a, b, false, nan);
    default:
      return a;
  }
}

template <class H>
u16 one(const Ins& ins, u16 x, u16 y, u16 z) {
  switch (static_cast<LaneOp>(ins.detail)) {
    case LaneOp::kAbs:
      return x & 0x7fffu;
    case LaneOp::kNeg:
      return x ^ 0x8000u;
    default:
      break;
  }
  double r = compute<H>(ins, x, y, z);
  if ((ins.flags & kFlagSaturate) != 0) r = r > 0 ? (r < 1 ? r : 1.0) : 0.0;
  if ((ins.flags & kFlagRelu) != 0 && r < 0) r = 0;
  return static_cast<u16>(encode<typename H::Format>(r, Rounding::kRn, false));
}

template <class H, class T>
void operate(std::byte* registers, const Ins& ins, u32 mask) {
  T* d = row<T>(registers, ins.o[0]);
  const T* a = row<T>(registers, ins.o[1]);
  const T* b = ins.o[2] == ~0u ? a : row<T>(registers, ins.o[2]);
  const T* c = ins.o[3] == ~0u ? a : row<T>(registers, ins.o[3]);
  for (int lane = 0; lane < kLanes; ++lane) {
    if ((mask >> lane & 1) == 0) continue;
    T r = one<H>(ins, static_cast<u16>(a[lane]), static_cast<u16>(b[lane]),
                 static_cast<u16>(c[lane]));
    if constexpr (sizeof(T) == 4) {
      r |= u32{one<H>(ins, static_cast<u16>(a[lane] >> 16), static_cast<u16>(b[lane] >> 16),
                      static_cast<u16>(c[lane] >> 16))}
           << 16;
    }
    d[lane] = r;
  }
}

}  // namespace

LaneFn select_half(const LaneForm& form) {
  bool plain = (form.flags & ~(kFlagNan | kFlagSaturate | kFlagRelu)) == 0;
  if (!plain || (form.rounding != Rounding::kNone && form.rounding != Rounding::kRn))
    return nullptr;
  switch (form.op) {
    case LaneOp::kAdd:
    case LaneOp::kSub:
    case LaneOp::kMul:
    case LaneOp::kFma:
    case LaneOp::kMin:
    case LaneOp::kMax:
    case LaneOp::kAbs:
    case LaneOp::kNeg:
      break;
    default:
      return nullptr;
  }
  switch (form.type) {
    case Type::kF16:
      return &operate<HalfTraits, u16>;
    case Type::kF16x2:
      return &operate<HalfTraits, u32>;
    case Type::kBf16:
      return &operate<Bf16Traits, u16>;
    case Type::kBf16x2:
      return &operate<Bf16Traits, u32>;
    default:
      return nullptr;
  }
}

}  // namespace attnloom::sim::ATTNLOOM_SIM_ISA
