// SPDX-License-Identifier: Apache-2.0
// Rounding and number formats, exact and the same on every machine. NaN results are canonical, as
// on the device; on the host the payload would depend on which form of fma the compiler picked.
#pragma once

#include "sim/lanes/loops.h"

namespace attnloom::sim::ATTNLOOM_SIM_ISA {

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using i8 = std::int8_t;
using i16 = std::int16_t;
using i32 = std::int32_t;
using i64 = std::int64_t;

inline constexpr u32 kCanonicalNan = 0x7fffffffu;

inline float canonical(float x) {
  return x != x ? bits_as<float>(kCanonicalNan) : x;
}
inline double canonical(double x) {
  return x != x ? bits_as<double>(u64{0x7fffffffffffffffu}) : x;
}

inline float flush(float x) {
  return (bits_as<u32>(x) & 0x7f800000u) == 0 ? bits_as<float>(bits_as<u32>(x) & 0x80000000u) : x;
}
template <bool Ftz>
inline float flush_if(float x) {
  return Ftz ? flush(x) : x;
}
inline float saturate(float x) {
  return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f;
}  // NaN becomes +0

inline float bf16_value(u16 h) {
  return bits_as<float>(u32{h} << 16);
}
inline u16 bf16_nearest(float f) {
  u32 x = bits_as<u32>(f);
  u32 rounded = (x + 0x7fffu + (x >> 16 & 1)) >> 16;
  return static_cast<u16>((x & 0x7fffffffu) > 0x7f800000u ? 0x7fffu : rounded);
}

inline float f16_value(u16 h) {
  u32 magnitude = h & 0x7fffu;
  // The exponent is moved by a multiplication, which also normalises subnormal numbers.
  u32 finite = bits_as<u32>(bits_as<float>(magnitude << 13) * bits_as<float>(0x77800000u));
  u32 special = 0x7f800000u | magnitude << 13;
  return bits_as<float>((magnitude >= 0x7c00u ? special : finite) | (u32{h} & 0x8000u) << 16);
}
inline u16 f16_nearest(float f) {
  u32 x = bits_as<u32>(f), a = x & 0x7fffffffu, sign = x >> 16 & 0x8000u;
  // Adding 0.5 lets the hardware round at the position of the last bit of a subnormal number.
  u32 subnormal = bits_as<u32>(bits_as<float>(a) + 0.5f) - 0x3f000000u;
  u32 normal = (a - 0x38000000u + 0xfffu + (a >> 13 & 1)) >> 13;
  u32 r = a < 0x38800000u ? subnormal : normal;
  r = a >= 0x477ff000u ? 0x7c00u : r;
  return static_cast<u16>(a > 0x7f800000u ? 0x7fffu : sign | r);
}

// A small binary format with `kMantissa` bits and least normal exponent kMinExponent.
struct F16 {
  static constexpr int kMantissa = 10, kMinExponent = -14;
  static constexpr u32 kMax = 0x7bff, kInf = 0x7c00, kNan = 0x7fff, kSign = 0x8000;
};
struct Bf16 {
  static constexpr int kMantissa = 7, kMinExponent = -126;
  static constexpr u32 kMax = 0x7f7f, kInf = 0x7f80, kNan = 0x7fff, kSign = 0x8000;
};
struct E5m2 {
  static constexpr int kMantissa = 2, kMinExponent = -14;
  static constexpr u32 kMax = 0x7b, kInf = 0x7c, kNan = 0x7f, kSign = 0x80;
};
// e4m3 has no infinity: what overflows becomes NaN unless it saturates.
struct E4m3 {
  static constexpr int kMantissa = 3, kMinExponent = -6;
  static constexpr u32 kMax = 0x7e, kInf = 0x7f, kNan = 0x7f, kSign = 0x80;
};
struct Tf32 {
  static constexpr int kMantissa = 10, kMinExponent = -126;
  static constexpr u32 kMax = 0x3fbff, kInf = 0x3fc00, kNan = 0x3ffff, kSign = 0x40000;
};

// The code of `value` in Format. `value` must be exact or rounded to odd in double.
template <class Format>
inline u32 encode(double value, Rounding rounding, bool finite) {
  u64 bits = bits_as<u64>(value);
  u32 sign = (bits >> 63) != 0 ? Format::kSign : 0;
  bool negative = sign != 0;
  int exponent = static_cast<int>(bits >> 52 & 0x7ff) - 1023;
  if (value != value) return Format::kNan;
  if (exponent == 1024) return sign | (finite ? Format::kMax : Format::kInf);
  if (exponent == -1023) return sign;  // zero; double's own subnormals are below every format here
  u64 significand = (bits & 0xfffffffffffffu) | u64{1} << 52;
  int base = exponent < Format::kMinExponent ? Format::kMinExponent : exponent;
  int shift = base - Format::kMantissa - exponent + 52;
  u64 kept = shift < 64 ? significand >> shift : 0;
  u64 lost = shift < 64 ? significand & ((u64{1} << shift) - 1) : significand;
  u64 half = shift < 64 ? u64{1} << (shift - 1) : ~u64{0};
  bool up = false;
  switch (rounding) {
    case Rounding::kRz:
      break;
    case Rounding::kRm:
      up = negative && lost != 0;
      break;
    case Rounding::kRp:
      up = !negative && lost != 0;
      break;
    case Rounding::kRna:
      up = lost >= half;
      break;
    default:
      up = lost > half || (lost == half && (kept & 1) != 0);
  }
  u64 code = kept + (up ? 1 : 0);
  if (exponent >= Format::kMinExponent) {
    code += (static_cast<u64>(exponent - Format::kMinExponent + 1) << Format::kMantissa) -
            (u64{1} << Format::kMantissa);
  }
  if (code > Format::kMax) {
    bool toward_zero = rounding == Rounding::kRz || (rounding == Rounding::kRm && !negative) ||
                       (rounding == Rounding::kRp && negative);
    return sign | (finite || toward_zero ? Format::kMax : Format::kInf);
  }
  return sign | static_cast<u32>(code);
}

inline float e5m2_value(u8 x) {
  return f16_value(static_cast<u16>(u32{x} << 8));
}
inline float e4m3_value(u8 x) {
  u32 magnitude = x & 0x7fu;
  float finite =
      bits_as<float>(magnitude << 20) * bits_as<float>(0x7b800000u);  // 2^120: bias 127 - 7
  u32 bits = magnitude == 0x7f ? kCanonicalNan : bits_as<u32>(finite) | (u32{x} & 0x80u) << 24;
  return bits_as<float>(bits);
}

struct Sum {
  double value;  // rounded to nearest
  double error;  // exact sum = value + error
};
inline Sum exact_sum(double a, double b) {
  double s = a + b, bb = s - a;
  return {s, (a - (s - bb)) + (b - bb)};
}

// The exact sum rounded to odd: a later rounding to fewer bits is then correct.
inline double odd_sum(double a, double b) {
  Sum s = exact_sum(a, b);
  u64 bits = bits_as<u64>(s.value);
  bool finite = (bits >> 52 & 0x7ff) != 0x7ff;
  if (!finite || s.error == 0 || (bits & 1) != 0) return s.value;
  return bits_as<double>((s.error > 0) == (s.value > 0) ? bits + 1 : bits - 1);
}

inline float step(float x, bool up) {
  u32 bits = bits_as<u32>(x);
  if (x == 0) return bits_as<float>(up ? 1u : 0x80000001u);
  return bits_as<float>((x > 0) == up ? bits + 1 : bits - 1);
}

// a + b, both exact in double, rounded to float as asked.
inline float directed_sum(double a, double b, Rounding rounding) {
  Sum s = exact_sum(a, b);
  float f = static_cast<float>(s.value);
  bool finite = (bits_as<u64>(s.value) >> 52 & 0x7ff) != 0x7ff;
  if (!finite) return canonical(f);
  if (s.value == 0) {
    bool plus_zero = bits_as<u64>(a) == 0 && bits_as<u64>(b) == 0;
    return rounding == Rounding::kRm && !plus_zero ? -0.0f : f;
  }
  double above = static_cast<double>(f) - s.value;
  if (above == 0) above = -s.error;
  bool down = rounding == Rounding::kRm || (rounding == Rounding::kRz && s.value > 0);
  bool up = rounding == Rounding::kRp || (rounding == Rounding::kRz && s.value < 0);
  if (above > 0 && down) return step(f, false);
  if (above < 0 && up) return step(f, true);
  return f;
}

}  // namespace attnloom::sim::ATTNLOOM_SIM_ISA
