// SPDX-License-Identifier: Apache-2.0
// f32 and f64 arithmetic as IEEE and PTX define it.
#include "sim/lanes/number.h"

namespace attnloom::sim::ATTNLOOM_SIM_ISA {
namespace {

template <bool Ftz>
struct Add {
  float operator()(float a, float b) const {
    return canonical(flush_if<Ftz>(flush_if<Ftz>(a) + flush_if<Ftz>(b)));
  }
};
template <bool Ftz>
struct Sub {
  float operator()(float a, float b) const {
    return canonical(flush_if<Ftz>(flush_if<Ftz>(a) - flush_if<Ftz>(b)));
  }
};
template <bool Ftz>
struct Mul {
  float operator()(float a, float b) const {
    return canonical(flush_if<Ftz>(flush_if<Ftz>(a) * flush_if<Ftz>(b)));
  }
};
template <bool Ftz>
struct Div {
  float operator()(float a, float b) const {
    return canonical(flush_if<Ftz>(flush_if<Ftz>(a) / flush_if<Ftz>(b)));
  }
};
template <bool Ftz>
struct Fma {
  float operator()(float a, float b, float c) const {
    return canonical(
        flush_if<Ftz>(__builtin_fmaf(flush_if<Ftz>(a), flush_if<Ftz>(b), flush_if<Ftz>(c))));
  }
};
// min and max ignore one NaN unless told otherwise, and order -0 below +0.
template <bool Ftz, bool Nan>
struct Min {
  float operator()(float x, float y) const {
    float a = flush_if<Ftz>(x), b = flush_if<Ftz>(y);
    float equal = bits_as<float>(bits_as<u32>(a) | bits_as<u32>(b));
    float r = a < b ? a : b < a ? b : equal;
    float unordered = Nan || (a != a && b != b) ? bits_as<float>(kCanonicalNan) : a != a ? b : a;
    return a != a || b != b ? unordered : r;
  }
};
template <bool Ftz, bool Nan>
struct Max {
  float operator()(float x, float y) const {
    float a = flush_if<Ftz>(x), b = flush_if<Ftz>(y);
    float equal = bits_as<float>(bits_as<u32>(a) & bits_as<u32>(b));
    float r = a > b ? a : b > a ? b : equal;
    float unordered = Nan || (a != a && b != b) ? bits_as<float>(kCanonicalNan) : a != a ? b : a;
    return a != a || b != b ? unordered : r;
  }
};
template <bool Ftz>
struct Abs {
  float operator()(float a) const {
    return bits_as<float>(bits_as<u32>(flush_if<Ftz>(a)) & 0x7fffffffu);
  }
};
template <bool Ftz>
struct Neg {
  float operator()(float a) const {
    return bits_as<float>(bits_as<u32>(flush_if<Ftz>(a)) ^ 0x80000000u);
  }
};
template <bool Ftz>
struct Rcp {
  float operator()(float a) const { return canonical(flush_if<Ftz>(1.0f / flush_if<Ftz>(a))); }
};
template <bool Ftz>
struct Sqrt {
  float operator()(float a) const { return canonical(__builtin_sqrtf(flush_if<Ftz>(a))); }
};
template <class Inner>
struct Saturated {
  float operator()(float a, float b) const { return saturate(Inner()(a, b)); }
  float operator()(float a, float b, float c) const { return saturate(Inner()(a, b, c)); }
};
template <class Inner>
struct Flushed {
  float operator()(float a, float b) const { return flush(Inner()(flush(a), flush(b))); }
  float operator()(float a, float b, float c) const {
    return flush(Inner()(flush(a), flush(b), flush(c)));
  }
};
template <class U, U Sign>
struct CopySign {
  U operator()(U a, U b) const { return (a & Sign) | (b & ~Sign); }
};

template <Rounding R>
struct DirectedAdd {
  float operator()(float a, float b) const { return directed_sum(a, b, R); }
};
template <Rounding R>
struct DirectedSub {
  float operator()(float a, float b) const { return directed_sum(a, -static_cast<double>(b), R); }
};
template <Rounding R>
struct DirectedMul {
  float operator()(float a, float b) const {
    double p = static_cast<double>(a) * b;
    return directed_sum(p, __builtin_copysign(0.0, p), R);
  }
};
template <Rounding R>
struct DirectedFma {
  float operator()(float a, float b, float c) const {
    return directed_sum(static_cast<double>(a) * b, c, R);
  }
};

struct Add64 {
  double operator()(double a, double b) const { return canonical(a + b); }
};
struct Sub64 {
  double operator()(double a, double b) const { return canonical(a - b); }
};
struct Mul64 {
  double operator()(double a, double b) const { return canonical(a * b); }
};
struct Div64 {
  double operator()(double a, double b) const { return canonical(a / b); }
};
struct Fma64 {
  double operator()(double a, double b, double c) const {
    return canonical(__builtin_fma(a, b, c));
  }
};
struct Min64 {
  double operator()(double a, double b) const {
    return a != a ? canonical(b) : b != b ? a : a < b ? a : b;
  }
};
struct Max64 {
  double operator()(double a, double b) const {
    return a != a ? canonical(b) : b != b ? a : a > b ? a : b;
  }
};
struct Abs64 {
  u64 operator()(u64 a) const { return a & ~(u64{1} << 63); }
};
struct Neg64 {
  u64 operator()(u64 a) const {
    return a ^ u64 { 1 } << 63;
  }
};
struct Rcp64 {
  double operator()(double a) const { return canonical(1.0 / a); }
};
struct Sqrt64 {
  double operator()(double a) const { return canonical(__builtin_sqrt(a)); }
};

template <class F>
LaneFn binary32() {
  return &binary<float, float, float, F>;
}
template <class F>
LaneFn binary32(bool saturated) {
  return saturated ? binary32<Saturated<F>>() : binary32<F>();
}
template <class F>
LaneFn unary32() {
  return &unary<float, float, F>;
}
template <class F>
LaneFn ternary32(bool saturated) {
  return saturated ? &ternary<float, float, float, float, Saturated<F>>
                   : &ternary<float, float, float, float, F>;
}

template <class F>
LaneFn directed_binary(bool ftz, bool saturated) {
  return ftz ? binary32<Flushed<F>>(saturated) : binary32<F>(saturated);
}

template <Rounding R>
LaneFn select_directed(const LaneForm& form) {
  if ((form.flags & ~(kFlagFtz | kFlagSaturate)) != 0) return nullptr;
  bool ftz = (form.flags & kFlagFtz) != 0, sat = (form.flags & kFlagSaturate) != 0;
  switch (form.op) {
    case LaneOp::kAdd:
      return directed_binary<DirectedAdd<R>>(ftz, sat);
    case LaneOp::kSub:
      return directed_binary<DirectedSub<R>>(ftz, sat);
    case LaneOp::kMul:
      return directed_binary<DirectedMul<R>>(ftz, sat);
    case LaneOp::kFma:
      return ftz ? ternary32<Flushed<DirectedFma<R>>>(sat) : ternary32<DirectedFma<R>>(sat);
    default:
      return nullptr;
  }
}

template <bool Ftz>
LaneFn select_f32(const LaneForm& form) {
  bool sat = (form.flags & kFlagSaturate) != 0, nan = (form.flags & kFlagNan) != 0;
  switch (form.op) {
    case LaneOp::kAdd:
      return binary32<Add<Ftz>>(sat);
    case LaneOp::kSub:
      return binary32<Sub<Ftz>>(sat);
    case LaneOp::kMul:
      return binary32<Mul<Ftz>>(sat);
    case LaneOp::kFma:
      return ternary32<Fma<Ftz>>(sat);
    default:
      break;
  }
  if (sat) return nullptr;
  switch (form.op) {
    case LaneOp::kDiv:
      return binary32<Div<Ftz>>();
    case LaneOp::kMin:
      return nan ? binary32<Min<Ftz, true>>() : binary32<Min<Ftz, false>>();
    case LaneOp::kMax:
      return nan ? binary32<Max<Ftz, true>>() : binary32<Max<Ftz, false>>();
    case LaneOp::kAbs:
      return unary32<Abs<Ftz>>();
    case LaneOp::kNeg:
      return unary32<Neg<Ftz>>();
    case LaneOp::kRcp:
      return unary32<Rcp<Ftz>>();
    case LaneOp::kSqrt:
      return unary32<Sqrt<Ftz>>();
    case LaneOp::kCopysign:
      return &binary<u32, u32, u32, CopySign<u32, 0x80000000u>>;
    default:
      return nullptr;
  }
}

LaneFn select_f64(const LaneForm& form) {
  if ((form.rounding != Rounding::kNone && form.rounding != Rounding::kRn) ||
      (form.flags & ~kFlagApprox) != 0)
    return nullptr;
  switch (form.op) {
    case LaneOp::kAdd:
      return &binary<double, double, double, Add64>;
    case LaneOp::kSub:
      return &binary<double, double, double, Sub64>;
    case LaneOp::kMul:
      return &binary<double, double, double, Mul64>;
    case LaneOp::kDiv:
      return &binary<double, double, double, Div64>;
    case LaneOp::kFma:
      return &ternary<double, double, double, double, Fma64>;
    case LaneOp::kMin:
      return &binary<double, double, double, Min64>;
    case LaneOp::kMax:
      return &binary<double, double, double, Max64>;
    case LaneOp::kAbs:
      return &unary<u64, u64, Abs64>;
    case LaneOp::kNeg:
      return &unary<u64, u64, Neg64>;
    case LaneOp::kRcp:
      return &unary<double, double, Rcp64>;
    case LaneOp::kSqrt:
      return &unary<double, double, Sqrt64>;
    case LaneOp::kCopysign:
      return &binary<u64, u64, u64, CopySign<u64, u64{1} << 63>>;
    default:
      return nullptr;
  }
}

}  // namespace

LaneFn select_float(const LaneForm& form) {
  if (form.type == Type::kF64) return select_f64(form);
  if (form.type != Type::kF32) return nullptr;
  if ((form.flags & ~(kFlagFtz | kFlagSaturate | kFlagNan | kFlagApprox)) != 0) return nullptr;
  switch (form.rounding) {
    case Rounding::kNone:
    case Rounding::kRn:
      return (form.flags & kFlagFtz) != 0 ? select_f32<true>(form) : select_f32<false>(form);
    case Rounding::kRz:
      return select_directed<Rounding::kRz>(form);
    case Rounding::kRm:
      return select_directed<Rounding::kRm>(form);
    case Rounding::kRp:
      return select_directed<Rounding::kRp>(form);
    default:
      return nullptr;
  }
}

}  // namespace attnloom::sim::ATTNLOOM_SIM_ISA
