// SPDX-License-Identifier: Apache-2.0
// Logic, shifts, fields, moves and selections: whatever looks at bits and not at numbers.
#include "sim/lanes/number.h"

namespace attnloom::sim::ATTNLOOM_SIM_ISA {
namespace {

template <class T>
struct Copy {
  T operator()(T a) const { return a; }
};
template <class T>
struct And {
  T operator()(T a, T b) const { return static_cast<T>(a & b); }
};
template <class T>
struct Or {
  T operator()(T a, T b) const { return static_cast<T>(a | b); }
};
template <class T>
struct Xor {
  T operator()(T a, T b) const { return static_cast<T>(a ^ b); }
};
template <class T>
struct Not {
  T operator()(T a) const { return static_cast<T>(~a); }
};
template <class T>
struct Cnot {
  T operator()(T a) const { return a == 0 ? 1 : 0; }
};
template <class T>
struct Shl {
  T operator()(T a, u32 n) const { return n >= 8 * sizeof(T) ? T{0} : static_cast<T>(a << n); }
};
template <class T>
struct Shr {
  T operator()(T a, u32 n) const {
    constexpr u32 kBits = 8 * sizeof(T);
    if constexpr (static_cast<T>(-1) < T{0})
      return static_cast<T>(a >> (n >= kBits ? kBits - 1 : n));
    return n >= kBits ? T{0} : static_cast<T>(a >> n);
  }
};
template <bool Wrap>
struct ShfL {
  u32 operator()(u32 lo, u32 hi, u32 c) const {
    u32 n = Wrap ? c & 31 : (c > 32 ? 32 : c);
    u64 both = u64{hi} << 32 | lo;
    return static_cast<u32>(n == 32 ? lo : both << n >> 32);
  }
};
template <bool Wrap>
struct ShfR {
  u32 operator()(u32 lo, u32 hi, u32 c) const {
    u32 n = Wrap ? c & 31 : (c > 32 ? 32 : c);
    return static_cast<u32>((u64{hi} << 32 | lo) >> n);
  }
};
struct Popc32 {
  u32 operator()(u32 a) const { return static_cast<u32>(__builtin_popcount(a)); }
};
struct Popc64 {
  u32 operator()(u64 a) const { return static_cast<u32>(__builtin_popcountll(a)); }
};
struct Clz32 {
  u32 operator()(u32 a) const { return a == 0 ? 32 : static_cast<u32>(__builtin_clz(a)); }
};
struct Clz64 {
  u32 operator()(u64 a) const { return a == 0 ? 64 : static_cast<u32>(__builtin_clzll(a)); }
};
template <class T>
struct Brev {
  T operator()(T a) const {
    T r = 0;
    for (unsigned k = 0; k < 8 * sizeof(T); ++k) r = static_cast<T>(r << 1 | (a >> k & 1));
    return r;
  }
};
// bfind: the highest bit that differs from the sign; all ones if there is none.
template <class T>
struct Bfind {
  u32 operator()(T a, const Ins& ins) const {
    constexpr int kBits = 8 * sizeof(T);
    bool negative = static_cast<T>(-1) < T{0} && a < 0;
    u64 x = negative ? static_cast<u64>(~a) : static_cast<u64>(a);
    if constexpr (kBits == 32) x &= 0xffffffffu;
    if (x == 0) return ~0u;
    u32 position = 63u - static_cast<u32>(__builtin_clzll(x));
    return (ins.flags & kFlagShiftAmount) != 0 ? kBits - 1 - position : position;
  }
};
template <class T>
struct Bfe {
  T operator()(T a, u32 b, u32 c) const {
    constexpr int kBits = 8 * sizeof(T);
    int position = static_cast<int>(b & 255), length = static_cast<int>(c & 255);
    bool is_signed = static_cast<T>(-1) < T{0};
    int last = position + length - 1 < kBits - 1 ? position + length - 1 : kBits - 1;
    bool sign = is_signed && length > 0 && (static_cast<u64>(a) >> last & 1) != 0;
    u64 r = sign ? ~u64{0} : 0;
    for (int k = 0; k < kBits && k < length; ++k) {
      u64 bit = position + k < kBits ? static_cast<u64>(a) >> (position + k) & 1 : sign;
      r = (r & ~(u64{1} << k)) | bit << k;
    }
    return static_cast<T>(r);
  }
};

template <class T>
void bfi(std::byte* registers, const Ins& ins, u32 mask) {
  T* d = row<T>(registers, ins.o[0]);
  const T *a = row<T>(registers, ins.o[1]), *b = row<T>(registers, ins.o[2]);
  const u32 *c = row<u32>(registers, ins.o[3]), *n = row<u32>(registers, ins.o[4]);
  constexpr u32 kBits = 8 * sizeof(T);
  for (int lane = 0; lane < kLanes; ++lane) {
    if ((mask >> lane & 1) == 0) continue;
    u32 position = c[lane] & 255, length = n[lane] & 255;
    T field = length >= kBits ? static_cast<T>(~T{0}) : static_cast<T>((T{1} << length) - 1);
    T moved = position >= kBits ? T{0} : static_cast<T>(field << position);
    T value = position >= kBits ? T{0} : static_cast<T>(a[lane] << position);
    d[lane] = (b[lane] & ~moved) | (value & moved);
  }
}

struct Prmt {
  u32 operator()(u32 a, u32 b, u32 selector) const {
    u64 bytes = u64{b} << 32 | a;
    u32 r = 0;
    for (int k = 0; k < 4; ++k) {
      u32 s = selector >> (4 * k);
      u32 byte = static_cast<u32>(bytes >> (8 * (s & 7))) & 255;
      if ((s & 8) != 0) byte = (byte & 128) != 0 ? 255 : 0;
      r |= byte << (8 * k);
    }
    return r;
  }
};

void lop3(std::byte* registers, const Ins& ins, u32 mask) {
  u32* d = row<u32>(registers, ins.o[0]);
  const u32 *a = row<u32>(registers, ins.o[1]), *b = row<u32>(registers, ins.o[2]),
            *c = row<u32>(registers, ins.o[3]);
  u32 table = static_cast<u32>(ins.imm), t[8];
  for (int k = 0; k < 8; ++k) t[k] = (table >> k & 1) != 0 ? ~0u : 0;
  alignas(64) u32 r[kLanes];
  ATTNLOOM_LANES {
    u32 x = a[lane], y = b[lane], z = c[lane];
    r[lane] = (t[0] & ~x & ~y & ~z) | (t[1] & ~x & ~y & z) | (t[2] & ~x & y & ~z) |
              (t[3] & ~x & y & z) | (t[4] & x & ~y & ~z) | (t[5] & x & ~y & z) |
              (t[6] & x & y & ~z) | (t[7] & x & y & z);
  }
  blend(d, r, mask);
}

template <class T>
void selp(std::byte* registers, const Ins& ins, u32 mask) {
  T* d = row<T>(registers, ins.o[0]);
  const T *a = row<T>(registers, ins.o[1]), *b = row<T>(registers, ins.o[2]);
  u32 p = predicate(registers, ins.o[3]);
  if (mask == ~0u) {
    ATTNLOOM_LANES d[lane] = (p >> lane & 1) != 0 ? a[lane] : b[lane];
  } else {
    alignas(64) T t[kLanes];
    ATTNLOOM_LANES t[lane] = (p >> lane & 1) != 0 ? a[lane] : b[lane];
    blend(d, t, mask);
  }
}

template <class T, class C>
struct Slct {
  T operator()(T a, T b, C c) const { return c >= 0 ? a : b; }
};

template <class Word>
struct Pack2 {
  Word operator()(u32 lo, u32 hi) const { return static_cast<Word>(Word{hi} << 32 | lo); }
};
struct Pack16 {
  u32 operator()(u16 lo, u16 hi) const { return u32{hi} << 16 | lo; }
};
template <class D, class A, int Shift>
struct Part {
  D operator()(A a) const { return static_cast<D>(a >> Shift); }
};
template <class D, class A>
struct Cast {
  D operator()(A a) const { return static_cast<D>(a); }
};

void predicate_logic(std::byte* registers, const Ins& ins, u32 mask) {
  u32 a = predicate(registers, ins.o[1]), b = ins.o[2] == ~0u ? 0 : predicate(registers, ins.o[2]);
  u32 r = a;
  switch (static_cast<LaneOp>(ins.detail)) {
    case LaneOp::kAnd:
      r = a & b;
      break;
    case LaneOp::kOr:
      r = a | b;
      break;
    case LaneOp::kXor:
      r = a ^ b;
      break;
    case LaneOp::kNot:
      r = ~a;
      break;
    default:
      break;
  }
  write_predicate(registers, ins.o[0], mask, r);
}

struct Dp4a {
  u32 operator()(u32 a, u32 b, u32 c) const {
    for (int k = 0; k < 4; ++k)
      c +=
          static_cast<u32>(i32{static_cast<i8>(a >> (8 * k))} * i32{static_cast<i8>(b >> (8 * k))});
    return c;
  }
};
struct Dp4aUnsigned {
  u32 operator()(u32 a, u32 b, u32 c) const {
    for (int k = 0; k < 4; ++k) c += (a >> (8 * k) & 255) * (b >> (8 * k) & 255);
    return c;
  }
};

template <class T, class S>
LaneFn select_word(const LaneForm& form) {  // T unsigned, S the same size signed
  bool is_signed_type = is_signed(form.type);
  switch (form.op) {
    case LaneOp::kMov:
      return &unary<T, T, Copy<T>>;
    case LaneOp::kAnd:
      return &binary<T, T, T, And<T>>;
    case LaneOp::kOr:
      return &binary<T, T, T, Or<T>>;
    case LaneOp::kXor:
      return &binary<T, T, T, Xor<T>>;
    case LaneOp::kNot:
      return &unary<T, T, Not<T>>;
    case LaneOp::kCnot:
      return &unary<T, T, Cnot<T>>;
    case LaneOp::kShl:
      return &binary<T, T, u32, Shl<T>>;
    case LaneOp::kShr:
      return is_signed_type ? &binary<S, S, u32, Shr<S>> : &binary<T, T, u32, Shr<T>>;
    case LaneOp::kSelp:
      return &selp<T>;
    case LaneOp::kSlct:
      return form.source == Type::kF32 ? &ternary<T, T, T, float, Slct<T, float>>
                                       : &ternary<T, T, T, i32, Slct<T, i32>>;
    default:
      break;
  }
  if constexpr (sizeof(T) >= 4) {
    switch (form.op) {
      case LaneOp::kBrev:
        return &unary<T, T, Brev<T>>;
      case LaneOp::kBfind:
        return is_signed_type ? &each_lane<u32, S, Bfind<S>> : &each_lane<u32, T, Bfind<T>>;
      case LaneOp::kBfe:
        return is_signed_type ? &ternary<S, S, u32, u32, Bfe<S>> : &ternary<T, T, u32, u32, Bfe<T>>;
      case LaneOp::kBfi:
        return &bfi<T>;
      case LaneOp::kPopc:
        return sizeof(T) == 4 ? &unary<u32, u32, Popc32> : &unary<u32, u64, Popc64>;
      case LaneOp::kClz:
        return sizeof(T) == 4 ? &unary<u32, u32, Clz32> : &unary<u32, u64, Clz64>;
      default:
        break;
    }
  }
  return nullptr;
}

template <class D>
LaneFn select_resize_to(const LaneForm& form) {
  bool extend_sign = is_signed(form.source);
  switch (type_bytes(form.source)) {
    case 1:
      return extend_sign ? &unary<D, u16, Cast<i8, u16>> : &unary<D, u16, Cast<u8, u16>>;
    case 2:
      return extend_sign ? &unary<D, i16, Cast<D, i16>> : &unary<D, u16, Cast<D, u16>>;
    case 4:
      return extend_sign ? &unary<D, i32, Cast<D, i32>> : &unary<D, u32, Cast<D, u32>>;
    case 8:
      return &unary<D, u64, Cast<D, u64>>;
    default:
      return nullptr;
  }
}

LaneFn select_special(const LaneForm& form) {
  bool wrap = (form.flags & kFlagWrap) != 0;
  switch (form.op) {
    case LaneOp::kShfL:
      return wrap ? &ternary<u32, u32, u32, u32, ShfL<true>>
                  : &ternary<u32, u32, u32, u32, ShfL<false>>;
    case LaneOp::kShfR:
      return wrap ? &ternary<u32, u32, u32, u32, ShfR<true>>
                  : &ternary<u32, u32, u32, u32, ShfR<false>>;
    case LaneOp::kPrmt:
      return &ternary<u32, u32, u32, u32, Prmt>;
    case LaneOp::kLop3:
      return &lop3;
    case LaneOp::kDp4a:
      return form.type == Type::kS32 ? &ternary<u32, u32, u32, u32, Dp4a>
                                     : &ternary<u32, u32, u32, u32, Dp4aUnsigned>;
    case LaneOp::kPack2:
      return type_bytes(form.type) == 8 ? &binary<u64, u32, u32, Pack2<u64>>
                                        : &binary<u32, u16, u16, Pack16>;
    case LaneOp::kUnpackLow:
      return type_bytes(form.type) == 8 ? &unary<u32, u64, Part<u32, u64, 0>>
                                        : &unary<u16, u32, Part<u16, u32, 0>>;
    case LaneOp::kUnpackHigh:
      return type_bytes(form.type) == 8 ? &unary<u32, u64, Part<u32, u64, 32>>
                                        : &unary<u16, u32, Part<u16, u32, 16>>;
    case LaneOp::kResize:
      switch (type_bytes(form.type)) {
        case 2:
          return select_resize_to<u16>(form);
        case 4:
          return select_resize_to<u32>(form);
        case 8:
          return select_resize_to<u64>(form);
        default:
          return nullptr;
      }
    default:
      return nullptr;
  }
}

}  // namespace

LaneFn select_bits(const LaneForm& form) {
  if (form.rounding != Rounding::kNone || (form.flags & ~(kFlagWrap | kFlagShiftAmount)) != 0)
    return nullptr;
  if (LaneFn special = select_special(form)) return special;
  switch (form.op) {
    case LaneOp::kMov:
    case LaneOp::kAnd:
    case LaneOp::kOr:
    case LaneOp::kXor:
    case LaneOp::kNot:
      if (form.type == Type::kPred) return &predicate_logic;
      break;
    default:
      break;
  }
  switch (type_bytes(form.type)) {
    case 2:
      return select_word<u16, i16>(form);
    case 4:
      return select_word<u32, i32>(form);
    case 8:
      return select_word<u64, i64>(form);
    default:
      return nullptr;
  }
}

}  // namespace attnloom::sim::ATTNLOOM_SIM_ISA
