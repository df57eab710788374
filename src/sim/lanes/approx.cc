// SPDX-License-Identifier: Apache-2.0
// The .approx family. The device's own bits are not published; each result here is within the error
// that the PTX manual states, and built from IEEE operations only, so that it is the same on every
// host (libm is not).
#include "sim/lanes/number.h"

namespace attnloom::sim::ATTNLOOM_SIM_ISA {
namespace {

// 2^x for |x| <= 1000, relative error below 1e-9 (Taylor of 2^f, |f| <= 1/2).
inline double exp2_double(double x) {
  constexpr double kRoundMagic = 6755399441055744.0;  // 1.5 * 2^52: adding it rounds to an integer
  double shifted = x + kRoundMagic, n = shifted - kRoundMagic, f = x - n;
  double p = 1.0178086e-7;
  p = p * f + 1.3215486790144309e-6;
  p = p * f + 1.5252733804059841e-5;
  p = p * f + 1.5403530393381608e-4;
  p = p * f + 1.3333558146428443e-3;
  p = p * f + 9.6181291076284772e-3;
  p = p * f + 5.5504108664821580e-2;
  p = p * f + 2.4022650695910072e-1;
  p = p * f + 6.9314718055994531e-1;
  p = p * f + 1.0;
  u64 scale = (bits_as<u64>(shifted) + 1023)
              << 52;  // the integer sits in the low bits of `shifted`
  return p * bits_as<double>(scale);
}

template <bool Ftz>
struct Ex2 {
  float operator()(float x) const {
    float a = flush_if<Ftz>(x);
    float clamped = a < -200.0f ? -200.0f : a > 200.0f ? 200.0f : a;
    float r = flush_if<Ftz>(static_cast<float>(exp2_double(clamped)));
    return a != a ? bits_as<float>(kCanonicalNan) : r;
  }
};

inline double log2_double(double x) {  // x > 0 and normal
  u64 bits = bits_as<u64>(x);
  i64 exponent = static_cast<i64>(bits >> 52) - 1023;
  double m = bits_as<double>((bits & 0xfffffffffffffu) | u64{1023} << 52);
  bool high = m > 1.4142135623730951;
  m = high ? m * 0.5 : m;
  double e = static_cast<double>(static_cast<i32>(exponent) + (high ? 1 : 0));
  double t = (m - 1.0) / (m + 1.0), s = t * t;
  double p = 1.0 / 15.0;
  p = p * s + 1.0 / 13.0;
  p = p * s + 1.0 / 11.0;
  p = p * s + 1.0 / 9.0;
  p = p * s + 1.0 / 7.0;
  p = p * s + 1.0 / 5.0;
  p = p * s + 1.0 / 3.0;
  p = p * s + 1.0;
  return e + p * t * 2.8853900817779268;
}

template <bool Ftz>
struct Lg2 {
  float operator()(float x) const {
    float a = flush_if<Ftz>(x);
    float r = static_cast<float>(log2_double(a > 0.0f ? static_cast<double>(a) : 1.0));
    float infinity = bits_as<float>(0x7f800000u);
    if (a == infinity) r = infinity;
    if (a == 0.0f) r = -infinity;
    return a != a || a < 0.0f ? bits_as<float>(kCanonicalNan) : r;
  }
};

template <bool Ftz>
struct Rsqrt {
  float operator()(float x) const {
    float a = flush_if<Ftz>(x);
    return canonical(
        flush_if<Ftz>(static_cast<float>(1.0 / __builtin_sqrt(static_cast<double>(a)))));
  }
};

// sin (phase 0) or cos (phase 1). The device's error grows with |x| as well; beyond 2^31 nothing is
// promised.
template <int Phase, bool Ftz>
struct Circle {
  float operator()(float x) const {
    double a = flush_if<Ftz>(x), limit = 2147483648.0;
    double inside = a > limit ? limit : a < -limit ? -limit : a;
    constexpr double kRoundMagic = 6755399441055744.0;
    double shifted = inside * 0.63661977236758134 + kRoundMagic, n = shifted - kRoundMagic;
    double r = (inside - n * 1.5707963267341256) - n * 6.0771005065061922e-11, s = r * r;
    u64 quadrant = bits_as<u64>(shifted) + Phase;
    double sine =
        r * (1 + s * (-1.0 / 6 + s * (1.0 / 120 + s * (-1.0 / 5040 + s * (1.0 / 362880)))));
    double cosine =
        1 +
        s * (-0.5 + s * (1.0 / 24 + s * (-1.0 / 720 + s * (1.0 / 40320 + s * (-1.0 / 3628800)))));
    double v = (quadrant & 1) != 0 ? cosine : sine;
    float r32 = static_cast<float>((quadrant & 2) != 0 ? -v : v);
    return (bits_as<u32>(x) & 0x7f800000u) == 0x7f800000u ? bits_as<float>(kCanonicalNan) : r32;
  }
};

// Exact tanh rounded to 11 bits of mantissa: the manual allows a relative error of 2^-11.
struct Tanh {
  float operator()(float x) const {
    double a = x > 20.0f ? 20.0 : x < -20.0f ? -20.0 : x;
    double s = a * a;
    double small = a * (1 + s * (-1.0 / 3 + s * (2.0 / 15 - s * (17.0 / 315))));
    double large = 1.0 - 2.0 / (exp2_double(a * 2.8853900817779268) + 1.0);
    float r = static_cast<float>(s < 0.01 ? small : large);
    float rounded = bits_as<float>((bits_as<u32>(r) + 0x800u) & ~0xfffu);
    return x != x ? bits_as<float>(kCanonicalNan) : rounded;
  }
};

template <class F>
struct HalfOf {
  u16 operator()(u16 x) const { return f16_nearest(F()(f16_value(x))); }
};
template <class F>
struct Bf16Of {
  u16 operator()(u16 x) const { return bf16_nearest(F()(bf16_value(x))); }
};
template <class F>
struct Pair {
  u32 operator()(u32 x) const {
    return u32{F()(static_cast<u16>(x >> 16))} << 16 | F()(static_cast<u16>(x));
  }
};

template <class F>
LaneFn by_type(Type type) {
  switch (type) {
    case Type::kF32:
      return &unary<float, float, F>;
    case Type::kF16:
      return &unary<u16, u16, HalfOf<F>>;
    case Type::kBf16:
      return &unary<u16, u16, Bf16Of<F>>;
    case Type::kF16x2:
      return &unary<u32, u32, Pair<HalfOf<F>>>;
    case Type::kBf16x2:
      return &unary<u32, u32, Pair<Bf16Of<F>>>;
    default:
      return nullptr;
  }
}

}  // namespace

LaneFn select_approx(const LaneForm& form) {
  if (form.rounding != Rounding::kNone || (form.flags & ~(kFlagFtz | kFlagApprox)) != 0)
    return nullptr;
  bool ftz = (form.flags & kFlagFtz) != 0;
  switch (form.op) {
    case LaneOp::kEx2:
      return ftz ? by_type<Ex2<true>>(form.type) : by_type<Ex2<false>>(form.type);
    case LaneOp::kTanh:
      return by_type<Tanh>(form.type);
    default:
      break;
  }
  if (form.type != Type::kF32) return nullptr;
  switch (form.op) {
    case LaneOp::kLg2:
      return ftz ? &unary<float, float, Lg2<true>> : &unary<float, float, Lg2<false>>;
    case LaneOp::kRsqrt:
      return ftz ? &unary<float, float, Rsqrt<true>> : &unary<float, float, Rsqrt<false>>;
    case LaneOp::kSin:
      return ftz ? &unary<float, float, Circle<0, true>> : &unary<float, float, Circle<0, false>>;
    case LaneOp::kCos:
      return ftz ? &unary<float, float, Circle<1, true>> : &unary<float, float, Circle<1, false>>;
    default:
      return nullptr;
  }
}

}  // namespace attnloom::sim::ATTNLOOM_SIM_ISA
