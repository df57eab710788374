// SPDX-License-Identifier: Apache-2.0
// cvt. The forms of inner loops are vectorised; all others go through one scalar path, which is
// exact: an integer is kept as 64 bits and a float as a double.
#include "sim/lanes/number.h"

namespace attnloom::sim::ATTNLOOM_SIM_ISA {
namespace {

template <class D, class A>
struct Cast {
  D operator()(A a) const { return static_cast<D>(a); }
};
struct RoundToS32 {
  i32 operator()(float a) const {
    float r = __builtin_truncf(a);
    i32 inside = static_cast<i32>(r >= 2147483648.0f || r < -2147483648.0f || r != r ? 0.0f : r);
    return r != r               ? 0
           : r >= 2147483648.0f ? 0x7fffffff
           : r < -2147483648.0f ? -0x7fffffff - 1
                                : inside;
  }
};
struct F16Up {
  float operator()(u16 x) const { return canonical(f16_value(x)); }
};
struct Bf16Up {
  float operator()(u16 x) const { return canonical(bf16_value(x)); }
};
struct F16Down {
  u16 operator()(float x) const { return f16_nearest(x); }
};
struct Bf16Down {
  u16 operator()(float x) const { return bf16_nearest(x); }
};
struct F16Pair {
  u32 operator()(float hi, float lo) const { return u32{f16_nearest(hi)} << 16 | f16_nearest(lo); }
};
struct Bf16Pair {
  u32 operator()(float hi, float lo) const {
    return u32{bf16_nearest(hi)} << 16 | bf16_nearest(lo);
  }
};

struct Number {
  bool integer = false;
  bool negative = false;  // of an integer
  u64 magnitude = 0;
  double real = 0;
};

Number load_integer(i64 value, u64 raw, bool is_signed_type) {
  Number n;
  n.integer = true;
  n.negative = is_signed_type && value < 0;
  n.magnitude = n.negative ? 0 - static_cast<u64>(value) : raw;
  return n;
}

Number load(Type type, u64 raw) {
  Number n;
  switch (type) {
    case Type::kF16:
      n.real = f16_value(static_cast<u16>(raw));
      return n;
    case Type::kBf16:
      n.real = bf16_value(static_cast<u16>(raw));
      return n;
    case Type::kF32:
      n.real = bits_as<float>(static_cast<u32>(raw));
      return n;
    case Type::kF64:
      n.real = bits_as<double>(raw);
      return n;
    case Type::kE4m3:
      n.real = e4m3_value(static_cast<u8>(raw));
      return n;
    case Type::kE5m2:
      n.real = e5m2_value(static_cast<u8>(raw));
      return n;
    case Type::kU8:
      return load_integer(0, raw & 0xff, false);
    case Type::kS8:
      return load_integer(static_cast<i8>(raw), raw & 0xff, true);
    case Type::kU16:
      return load_integer(0, raw & 0xffff, false);
    case Type::kS16:
      return load_integer(static_cast<i16>(raw), raw & 0xffff, true);
    case Type::kU32:
      return load_integer(0, raw & 0xffffffffu, false);
    case Type::kS32:
      return load_integer(static_cast<i32>(raw), raw & 0xffffffffu, true);
    case Type::kS64:
      return load_integer(static_cast<i64>(raw), raw, true);
    default:
      return load_integer(0, raw, false);
  }
}

double round_integral(double x, Rounding rounding) {
  switch (rounding) {
    case Rounding::kRni:
    case Rounding::kRn:
      return __builtin_rint(x);
    case Rounding::kRmi:
    case Rounding::kRm:
      return __builtin_floor(x);
    case Rounding::kRpi:
    case Rounding::kRp:
      return __builtin_ceil(x);
    default:
      return __builtin_trunc(x);
  }
}

// Conversions of floats to integers clamp, and NaN gives 0.
u64 store_integer(const Number& n, Type type, Rounding rounding, bool clamp) {
  int bits = 8 * type_bytes(type);
  bool signed_type = is_signed(type);
  u64 highest =
      signed_type ? (u64{1} << (bits - 1)) - 1 : (bits == 64 ? ~u64{0} : (u64{1} << bits) - 1);
  u64 lowest = signed_type ? u64{1} << (bits - 1) : 0;  // its magnitude
  if (n.integer) {
    if (!clamp) return n.negative ? 0 - n.magnitude : n.magnitude;
    if (n.negative) return 0 - (n.magnitude < lowest ? n.magnitude : lowest);
    return n.magnitude < highest ? n.magnitude : highest;
  }
  if (n.real != n.real) return 0;
  double r = round_integral(n.real, rounding);
  double magnitude = r < 0 ? -r : r;
  bool huge = magnitude >= 18446744073709551616.0;
  u64 m = huge ? ~u64{0} : static_cast<u64>(magnitude);
  if (r < 0) return 0 - (m < lowest ? m : lowest);
  return m < highest ? m : highest;
}

double clamp_real(double x, const Ins& ins) {
  if ((ins.flags & kFlagSaturate) != 0) return x > 0 ? (x < 1 ? x : 1.0) : 0.0;
  if ((ins.flags & kFlagRelu) != 0) return x > 0 ? x : (x != x ? x : 0.0);
  return x;
}

u64 store_float(double hi, double lo,
                const Ins& ins) {  // value = hi + lo, lo != 0 for wide integers only
  Rounding r = ins.rounding;
  bool finite = (ins.flags & kFlagFinite) != 0;
  switch (ins.type) {
    case Type::kF64:
      return bits_as<u64>(canonical(hi + lo));
    case Type::kF32: {
      float f = r == Rounding::kRz || r == Rounding::kRm || r == Rounding::kRp
                    ? directed_sum(hi, lo, r)
                    : static_cast<float>(odd_sum(hi, lo));
      return bits_as<u32>(canonical((ins.flags & kFlagFtz) != 0 ? flush(f) : f));
    }
    case Type::kTf32:
      return u64{encode<Tf32>(hi, r, finite)} << 13;
    case Type::kF16:
      return encode<F16>(odd_sum(hi, lo), r, finite);
    case Type::kBf16:
      return encode<Bf16>(odd_sum(hi, lo), r, finite);
    case Type::kE4m3:
      return encode<E4m3>(hi, r, finite);
    case Type::kE5m2:
      return encode<E5m2>(hi, r, finite);
    default:
      return 0;
  }
}

u64 store(const Number& n, const Ins& ins) {
  if (!is_float(ins.type))
    return store_integer(n, ins.type, ins.rounding, (ins.flags & kFlagSaturate) != 0);
  if (n.integer) {
    double sign = n.negative ? -1.0 : 1.0;
    return store_float(sign * static_cast<double>(n.magnitude & ~u64{0x7ff}),
                       sign * static_cast<double>(n.magnitude & 0x7ff), ins);
  }
  double x = n.real;
  if ((ins.flags & kFlagFtz) != 0 && ins.source == Type::kF32) x = flush(static_cast<float>(x));
  bool integral = ins.rounding >= Rounding::kRni && ins.rounding <= Rounding::kRpi;
  if (integral) {
    double r = round_integral(x, ins.rounding);
    x = r == 0 ? __builtin_copysign(0.0, x) : r;
  }
  x = clamp_real(x, ins);
  return store_float(x, __builtin_copysign(0.0, x), ins);
}

u64 fetch(const std::byte* registers, u32 offset, int bytes, int lane) {
  u64 v = 0;
  __builtin_memcpy(&v, registers + offset + lane * bytes, static_cast<std::size_t>(bytes));
  return v;
}
void put(std::byte* registers, u32 offset, int bytes, int lane, u64 v) {
  __builtin_memcpy(registers + offset + lane * bytes, &v, static_cast<std::size_t>(bytes));
}
int register_size(Type type) {
  return type_bytes(type) == 1 ? 2 : type_bytes(type);
}

void scalar_convert(std::byte* registers, const Ins& ins, u32 mask) {
  int from = register_size(ins.source), to = register_size(ins.type);
  for (int lane = 0; lane < kLanes; ++lane) {
    if ((mask >> lane & 1) == 0) continue;
    u64 r = store(load(ins.source, fetch(registers, ins.o[1], from, lane)), ins);
    // A narrow result is extended to its register.
    if (ins.type == Type::kS8) r = static_cast<u64>(static_cast<i64>(static_cast<i8>(r)));
    if (ins.type == Type::kU8) r &= 0xff;
    put(registers, ins.o[0], to, lane, r);
  }
}

Type half_of(Type packed) {
  switch (packed) {
    case Type::kF16x2:
      return Type::kF16;
    case Type::kBf16x2:
      return Type::kBf16;
    case Type::kE4m3x2:
      return Type::kE4m3;
    case Type::kE5m2x2:
      return Type::kE5m2;
    default:
      return packed;
  }
}

// d = {a, b}: the first operand is the upper half; or d = both halves of one packed operand.
void packed_convert(std::byte* registers, const Ins& ins, u32 mask) {
  Ins one = ins;
  one.type = half_of(ins.type);
  one.source = half_of(ins.source);
  int width = 8 * type_bytes(one.type), from = register_size(ins.source);
  bool from_pair = one.source != ins.source;
  int from_width = 8 * type_bytes(one.source);
  for (int lane = 0; lane < kLanes; ++lane) {
    if ((mask >> lane & 1) == 0) continue;
    u64 first = fetch(registers, ins.o[1], from, lane);
    u64 hi = from_pair ? first >> from_width : first;
    u64 lo =
        from_pair ? first & ((u64{1} << from_width) - 1) : fetch(registers, ins.o[2], from, lane);
    u64 r = store(load(one.source, hi), one) << width | store(load(one.source, lo), one);
    put(registers, ins.o[0], type_bytes(ins.type), lane, r);
  }
}

LaneFn select_fast(const LaneForm& form) {
  Type d = form.type, s = form.source;
  bool nearest = form.rounding == Rounding::kRn;
  if (form.flags != 0) return nullptr;
  if (d == Type::kBf16x2 && s == Type::kF32 && nearest) return &binary<u32, float, float, Bf16Pair>;
  if (d == Type::kF16x2 && s == Type::kF32 && nearest) return &binary<u32, float, float, F16Pair>;
  if (d == Type::kF16 && s == Type::kF32 && nearest) return &unary<u16, float, F16Down>;
  if (d == Type::kBf16 && s == Type::kF32 && nearest) return &unary<u16, float, Bf16Down>;
  if (d == Type::kF32 && s == Type::kF16) return &unary<float, u16, F16Up>;
  if (d == Type::kF32 && s == Type::kBf16) return &unary<float, u16, Bf16Up>;
  if (d == Type::kF32 && s == Type::kS32 && nearest) return &unary<float, i32, Cast<float, i32>>;
  if (d == Type::kF32 && s == Type::kU32 && nearest) return &unary<float, u32, Cast<float, u32>>;
  if (d == Type::kS32 && s == Type::kF32 && form.rounding == Rounding::kRzi)
    return &unary<i32, float, RoundToS32>;
  if (type_bytes(d) == 8 && s == Type::kS32 && !is_float(d))
    return &unary<i64, i32, Cast<i64, i32>>;
  if (type_bytes(d) == 8 && s == Type::kU32 && !is_float(d))
    return &unary<u64, u32, Cast<u64, u32>>;
  if (type_bytes(d) == 4 && !is_float(d) && !is_float(s) && type_bytes(s) == 8)
    return &unary<u32, u64, Cast<u32, u64>>;
  return nullptr;
}

bool is_packed(Type type) {
  return half_of(type) != type;
}

}  // namespace

LaneFn select_convert(const LaneForm& form) {
  if (form.op != LaneOp::kConvert) return nullptr;
  if (LaneFn fast = select_fast(form)) return fast;
  if (form.type == Type::kB128 || form.type == Type::kPred || form.source == Type::kPred)
    return nullptr;
  return is_packed(form.type) ? &packed_convert : &scalar_convert;
}

}  // namespace attnloom::sim::ATTNLOOM_SIM_ISA
