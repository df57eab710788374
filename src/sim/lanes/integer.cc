// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <type_traits>

#include "sim/lanes/number.h"

namespace attnloom::sim::ATTNLOOM_SIM_ISA {
namespace {

// Twice as wide, of the same signedness.
template <class T, class Signed, class Other>
using OfSign = std::conditional_t<std::is_signed_v<T>, Signed, Other>;
template <class T>
using Wide = std::conditional_t<sizeof(T) == 2, OfSign<T, i32, u32>,
                                std::conditional_t<sizeof(T) == 4, OfSign<T, i64, u64>,
                                                   OfSign<T, __int128, unsigned __int128>>>;

// Arithmetic wraps: it is done in the unsigned type, and in 32 bits at least, so that no promotion
// to int overflows.
template <class T>
constexpr auto raw(T x) {
  return static_cast<std::make_unsigned_t<T>>(x) + 0u;
}
template <class T>
struct Add {
  T operator()(T a, T b) const { return static_cast<T>(raw(a) + raw(b)); }
};
template <class T>
struct Sub {
  T operator()(T a, T b) const { return static_cast<T>(raw(a) - raw(b)); }
};
template <class T>
struct Mul {
  T operator()(T a, T b) const { return static_cast<T>(raw(a) * raw(b)); }
};
template <class T>
struct Mad {
  T operator()(T a, T b, T c) const { return static_cast<T>(raw(a) * raw(b) + raw(c)); }
};
template <class T>
struct MulHi {
  T operator()(T a, T b) const {
    using W = Wide<T>;
    return static_cast<T>((static_cast<W>(a) * static_cast<W>(b)) >> (8 * sizeof(T)));
  }
};
template <class T>
struct MadHi {
  T operator()(T a, T b, T c) const { return static_cast<T>(raw(MulHi<T>()(a, b)) + raw(c)); }
};
template <class T>
struct MulWide {
  using W = Wide<T>;
  W operator()(T a, T b) const { return static_cast<W>(a) * static_cast<W>(b); }
};
template <class T>
struct MadWide {
  using W = Wide<T>;
  W operator()(T a, T b, W c) const { return static_cast<W>(raw(MulWide<T>()(a, b)) + raw(c)); }
};
// Division by zero is unspecified on the device; all ones is what it gives.
template <class T>
struct Div {
  T operator()(T a, T b) const {
    if (b == 0) return static_cast<T>(-1);
    if (static_cast<T>(-1) < T{0} && b == static_cast<T>(-1)) return static_cast<T>(0u - raw(a));
    return static_cast<T>(a / b);
  }
};
template <class T>
struct Rem {
  T operator()(T a, T b) const {
    if (b == 0) return a;
    if (static_cast<T>(-1) < T{0} && b == static_cast<T>(-1)) return 0;
    return static_cast<T>(a % b);
  }
};
template <class T>
struct Min {
  T operator()(T a, T b) const { return a < b ? a : b; }
};
template <class T>
struct Max {
  T operator()(T a, T b) const { return a > b ? a : b; }
};
template <class T>
struct Abs {
  T operator()(T a) const { return a < 0 ? static_cast<T>(0u - raw(a)) : a; }
};
template <class T>
struct Neg {
  T operator()(T a) const { return static_cast<T>(0u - raw(a)); }
};
template <class T>
struct Sad {
  T operator()(T a, T b, T c) const {
    return static_cast<T>(raw(c) + (a < b ? raw(b) - raw(a) : raw(a) - raw(b)));
  }
};
i32 saturated(i64 x) {
  return static_cast<i32>(std::clamp(x, -i64{0x80000000}, i64{0x7fffffff}));
}
struct AddSat {
  i32 operator()(i32 a, i32 b) const { return saturated(i64{a} + b); }
};
struct SubSat {
  i32 operator()(i32 a, i32 b) const { return saturated(i64{a} - b); }
};
struct Add2 {
  u32 operator()(u32 a, u32 b) const {
    return ((a + b) & 0xffffu) | ((a & 0xffff0000u) + (b & 0xffff0000u));
  }
};

template <class T, template <class> class F>
LaneFn binary_of() {
  return &binary<T, T, T, F<T>>;
}
template <class T, template <class> class F>
LaneFn ternary_of() {
  return &ternary<T, T, T, T, F<T>>;
}

template <class T>
LaneFn select_typed(const LaneForm& form) {
  using W = Wide<T>;
  switch (form.op) {
    case LaneOp::kAdd:
      return binary_of<T, Add>();
    case LaneOp::kSub:
      return binary_of<T, Sub>();
    case LaneOp::kMul:
      return binary_of<T, Mul>();
    case LaneOp::kMulHi:
      return binary_of<T, MulHi>();
    case LaneOp::kMad:
      return ternary_of<T, Mad>();
    case LaneOp::kMadHi:
      return ternary_of<T, MadHi>();
    case LaneOp::kMulWide:
      if constexpr (sizeof(T) <= 4) return &binary<W, T, T, MulWide<T>>;
      return nullptr;
    case LaneOp::kMadWide:
      if constexpr (sizeof(T) <= 4) return &ternary<W, T, T, W, MadWide<T>>;
      return nullptr;
    case LaneOp::kDiv:
      return binary_of<T, Div>();
    case LaneOp::kRem:
      return binary_of<T, Rem>();
    case LaneOp::kMin:
      return binary_of<T, Min>();
    case LaneOp::kMax:
      return binary_of<T, Max>();
    case LaneOp::kAbs:
      return &unary<T, T, Abs<T>>;
    case LaneOp::kNeg:
      return &unary<T, T, Neg<T>>;
    case LaneOp::kSad:
      return ternary_of<T, Sad>();
    default:
      return nullptr;
  }
}

LaneFn select_saturating(const LaneForm& form) {
  if (form.type != Type::kS32) return nullptr;
  if (form.op == LaneOp::kAdd) return &binary<i32, i32, i32, AddSat>;
  return form.op == LaneOp::kSub ? &binary<i32, i32, i32, SubSat> : nullptr;
}

}  // namespace

LaneFn select_integer(const LaneForm& form) {
  if (form.rounding != Rounding::kNone) return nullptr;
  if (form.flags == kFlagSaturate) return select_saturating(form);
  if (form.flags != 0) return nullptr;
  switch (form.type) {
    case Type::kS16:
      return select_typed<i16>(form);
    case Type::kU16:
      return select_typed<u16>(form);
    case Type::kS32:
      return select_typed<i32>(form);
    case Type::kU32:
      return select_typed<u32>(form);
    case Type::kS64:
      return select_typed<i64>(form);
    case Type::kU64:
      return select_typed<u64>(form);
    case Type::kU16x2:
    case Type::kS16x2:
      return form.op == LaneOp::kAdd ? &binary<u32, u32, u32, Add2> : nullptr;
    default:
      return nullptr;
  }
}

}  // namespace attnloom::sim::ATTNLOOM_SIM_ISA
