// SPDX-License-Identifier: Apache-2.0
// Numbers as element functors see them: each converts to the plain float or int that it stands for,
// and keeps apart what the compiler may not take apart. Of a logit, the raw product and the factors
// that are the same for a whole tile; of a key's position, the tile's part and the column. Every
// operation a logit that goes costs a prefill about 4 % (measured with soft caps and ALiBi).
#pragma once

#include "loom/types.cuh"

namespace loom {

// The operators below are for these types exactly: anything else converts and meets the language's
// own, without a choice between the two.
template <class T, class U>
constexpr bool kSame = false;
template <class T>
constexpr bool kSame<T, T> = true;
template <class T>
constexpr bool kIsFloat = kSame<T, float>;
template <class T>
constexpr bool kIsReal = kIsFloat<T> || kSame<T, ScalarF32>;
template <class T>
constexpr bool kIsInt = kSame<T, int>;
template <class T>
constexpr bool kIsNumber = kIsReal<T> || kIsInt<T> || kSame<T, u32>;

template <bool condition>
struct Only {};
template <>
struct Only<true> {
  using Ok = int;
};

// raw * scale + shift. The shift is -0 where there is none: what is added to it stays what it is.
struct Logit {
  float raw;
  float scale;
  float shift = -0.0f;

  LOOM_DEVICE operator float() const { return fmaf(raw, scale, shift); }
  LOOM_DEVICE Logit& operator=(float x) { return *this = Logit{x, 1.0f}; }
  LOOM_DEVICE Logit& operator+=(float x) { return *this = Logit{raw, scale, shift + x}; }
  LOOM_DEVICE Logit& operator-=(float x) { return *this = Logit{raw, scale, shift - x}; }
  LOOM_DEVICE Logit& operator*=(float x) { return *this = Logit{raw, scale * x, shift * x}; }
  LOOM_DEVICE Logit& operator/=(float x) { return *this = Logit{*this / x, 1.0f}; }
  LOOM_DEVICE Logit operator-() const { return {raw, -scale, -shift}; }
};
template <class T, typename Only<kIsNumber<T>>::Ok = 0>
LOOM_DEVICE Logit operator*(const Logit& x, const T& by) {
  return {x.raw, x.scale * static_cast<float>(by), x.shift * static_cast<float>(by)};
}
template <class T, typename Only<kIsNumber<T>>::Ok = 0>
LOOM_DEVICE Logit operator*(const T& by, const Logit& x) {
  return x * by;
}
template <class T, typename Only<kIsNumber<T>>::Ok = 0>
LOOM_DEVICE Logit operator+(const Logit& x, const T& y) {
  return {x.raw, x.scale, x.shift + static_cast<float>(y)};
}
template <class T, typename Only<kIsNumber<T>>::Ok = 0>
LOOM_DEVICE Logit operator+(const T& y, const Logit& x) {
  return x + y;
}
template <class T, typename Only<kIsNumber<T>>::Ok = 0>
LOOM_DEVICE Logit operator-(const Logit& x, const T& y) {
  return {x.raw, x.scale, x.shift - static_cast<float>(y)};
}
template <class T, typename Only<kIsNumber<T>>::Ok = 0>
LOOM_DEVICE Logit operator-(const T& y, const Logit& x) {
  return -x + y;
}

// A float times a param, which is the same for every logit.
struct Scaled {
  float value;
  float factor;
  LOOM_DEVICE operator float() const { return value * factor; }
  LOOM_DEVICE Scaled& operator=(float x) { return *this = Scaled{x, 1.0f}; }
};
template <class T, typename Only<kIsFloat<T>>::Ok = 0>
LOOM_DEVICE Scaled operator*(const ScalarF32& factor, const T& value) {
  return {value, factor.value};
}
template <class T, typename Only<kIsFloat<T>>::Ok = 0>
LOOM_DEVICE Scaled operator*(const T& value, const ScalarF32& factor) {
  return {value, factor.value};
}

// base + offset; the offset is a constant once the columns of a tile are written out.
struct Offset {
  int base;
  int offset;
  LOOM_DEVICE operator int() const { return base + offset; }
  // Exact below 2^24, as the conversion of the sum.
  LOOM_DEVICE explicit operator float() const {
    return static_cast<float>(base) + static_cast<float>(offset);
  }
};
// The difference of two positions.
struct Distance : Offset {};
template <class T, typename Only<kIsReal<T>>::Ok = 0>
LOOM_DEVICE float operator*(const T& by, const Distance& x) {
  const float k = by;
  return fmaf(k, static_cast<float>(x.offset), k * static_cast<float>(x.base));
}
template <class T, typename Only<kIsReal<T>>::Ok = 0>
LOOM_DEVICE float operator*(const Distance& x, const T& by) {
  return by * x;
}

// A key's position within its request.
struct KvPosition : Offset {
  LOOM_DEVICE KvPosition& operator=(int x) { return *this = KvPosition{{x, 0}}; }
  LOOM_DEVICE KvPosition& operator+=(int x) { return *this = KvPosition{{base + x, offset}}; }
  LOOM_DEVICE KvPosition& operator-=(int x) { return *this = KvPosition{{base - x, offset}}; }
};
template <class T, typename Only<kIsInt<T>>::Ok = 0>
LOOM_DEVICE Distance operator-(const T& position, const KvPosition& x) {
  return {{position - x.base, -x.offset}};
}
template <class T, typename Only<kIsInt<T>>::Ok = 0>
LOOM_DEVICE Distance operator-(const KvPosition& x, const T& position) {
  return {{x.base - position, x.offset}};
}

}  // namespace loom
