// SPDX-License-Identifier: Apache-2.0
// setp and testp: a comparison gives 32 bits of a predicate.
#include "sim/lanes/number.h"

namespace attnloom::sim::ATTNLOOM_SIM_ISA {
namespace {

struct Same {
  template <class T>
  static T value(T x) {
    return x;
  }
};
struct FromHalf {
  static float value(u16 x) { return f16_value(x); }
};
struct FromBf16 {
  static float value(u16 x) { return bf16_value(x); }
};
struct Flushed {
  static float value(float x) { return flush(x); }
};

template <Compare C, class T>
inline bool holds(T a, T b) {
  switch (C) {
    case Compare::kEq:
      return a == b;
    case Compare::kNe:
      return a < b || a > b;  // false for NaN
    case Compare::kLt:
      return a < b;
    case Compare::kLe:
      return a <= b;
    case Compare::kGt:
      return a > b;
    case Compare::kGe:
      return a >= b;
    case Compare::kEqu:
      return !(a < b || a > b);
    case Compare::kNeu:
      return !(a == b);
    case Compare::kLtu:
      return !(a >= b);
    case Compare::kLeu:
      return !(a > b);
    case Compare::kGtu:
      return !(a <= b);
    case Compare::kGeu:
      return !(a < b);
    case Compare::kNum:
      return a == a && b == b;
    case Compare::kNan:
      return a != a || b != b;
  }
  return false;
}

// p = (a ? b) combined with c; q = !(a ? b) combined with c.
inline void finish(std::byte* registers, const Ins& ins, u32 mask, u32 result) {
  u32 p = result, q = ~result;
  if (ins.o[4] != ~0u) {
    u32 c = predicate(registers, ins.o[4]);
    if ((ins.flags & kFlagNegateC) != 0) c = ~c;
    switch (static_cast<Combine>(ins.detail)) {
      case Combine::kAnd:
        p &= c;
        q &= c;
        break;
      case Combine::kOr:
        p |= c;
        q |= c;
        break;
      case Combine::kXor:
        p ^= c;
        q ^= c;
        break;
      case Combine::kNone:
        break;
    }
  }
  if (ins.o[0] != ~0u) write_predicate(registers, ins.o[0], mask, p);
  if (ins.o[1] != ~0u) write_predicate(registers, ins.o[1], mask, q);
}

template <class T, Compare C, class Load>
void compare(std::byte* registers, const Ins& ins, u32 mask) {
  const T *a = row<T>(registers, ins.o[2]), *b = row<T>(registers, ins.o[3]);
  u32 result = 0;
  ATTNLOOM_LANES result |= static_cast<u32>(holds<C>(Load::value(a[lane]), Load::value(b[lane])))
                           << lane;
  finish(registers, ins, mask, result);
}

template <class T, class Load>
LaneFn by_compare(Compare c) {
  switch (c) {
    case Compare::kEq:
      return &compare<T, Compare::kEq, Load>;
    case Compare::kNe:
      return &compare<T, Compare::kNe, Load>;
    case Compare::kLt:
      return &compare<T, Compare::kLt, Load>;
    case Compare::kLe:
      return &compare<T, Compare::kLe, Load>;
    case Compare::kGt:
      return &compare<T, Compare::kGt, Load>;
    case Compare::kGe:
      return &compare<T, Compare::kGe, Load>;
    default:
      return nullptr;
  }
}

template <class T, class Load>
LaneFn by_float_compare(Compare c) {
  switch (c) {
    case Compare::kEqu:
      return &compare<T, Compare::kEqu, Load>;
    case Compare::kNeu:
      return &compare<T, Compare::kNeu, Load>;
    case Compare::kLtu:
      return &compare<T, Compare::kLtu, Load>;
    case Compare::kLeu:
      return &compare<T, Compare::kLeu, Load>;
    case Compare::kGtu:
      return &compare<T, Compare::kGtu, Load>;
    case Compare::kGeu:
      return &compare<T, Compare::kGeu, Load>;
    case Compare::kNum:
      return &compare<T, Compare::kNum, Load>;
    case Compare::kNan:
      return &compare<T, Compare::kNan, Load>;
    default:
      return by_compare<T, Load>(c);
  }
}

// testp: detail 0 finite, 1 infinite, 2 number, 3 notanumber, 4 normal, 5 subnormal.
void testp(std::byte* registers, const Ins& ins, u32 mask) {
  const u32* a = row<u32>(registers, ins.o[1]);
  u32 result = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    u32 x = a[lane] & 0x7fffffffu, exponent = x >> 23;
    bool r = false;
    switch (ins.detail) {
      case 0:
        r = exponent != 255;
        break;
      case 1:
        r = x == 0x7f800000u;
        break;
      case 2:
        r = x <= 0x7f800000u;
        break;
      case 3:
        r = x > 0x7f800000u;
        break;
      case 4:
        r = exponent != 0 && exponent != 255;
        break;
      case 5:
        r = exponent == 0 && x != 0;
        break;
      default:
        break;
    }
    result |= static_cast<u32>(r) << lane;
  }
  write_predicate(registers, ins.o[0], mask, result);
}

}  // namespace

LaneFn select_compare(const LaneForm& form) {
  if (form.op == LaneOp::kTestp) return form.type == Type::kF32 ? &testp : nullptr;
  if (form.op != LaneOp::kSetp) return nullptr;
  Compare c = static_cast<Compare>(form.detail);
  switch (form.type) {
    case Type::kB16:
    case Type::kU16:
      return by_compare<u16, Same>(c);
    case Type::kS16:
      return by_compare<i16, Same>(c);
    case Type::kB32:
    case Type::kU32:
      return by_compare<u32, Same>(c);
    case Type::kS32:
      return by_compare<i32, Same>(c);
    case Type::kB64:
    case Type::kU64:
      return by_compare<u64, Same>(c);
    case Type::kS64:
      return by_compare<i64, Same>(c);
    case Type::kF32:
      return (form.flags & kFlagFtz) != 0 ? by_float_compare<float, Flushed>(c)
                                          : by_float_compare<float, Same>(c);
    case Type::kF64:
      return by_float_compare<double, Same>(c);
    case Type::kF16:
      return by_float_compare<u16, FromHalf>(c);
    case Type::kBf16:
      return by_float_compare<u16, FromBf16>(c);
    default:
      return nullptr;
  }
}

}  // namespace attnloom::sim::ATTNLOOM_SIM_ISA
