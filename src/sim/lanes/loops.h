// SPDX-License-Identifier: Apache-2.0
// Loops over the 32 lanes of a row. A functor is a type with a const operator(); it must be pure,
// because under a partial mask it also runs for lanes whose result is thrown away.
#pragma once

#include <cstring>

#include "sim/lanes/form.h"

#ifndef ATTNLOOM_SIM_ISA
#define ATTNLOOM_SIM_ISA baseline
#endif

#if defined(__clang__)
#define ATTNLOOM_LANES \
  _Pragma("clang loop vectorize(assume_safety)") for (int lane = 0; lane < kLanes; ++lane)
#else
#define ATTNLOOM_LANES _Pragma("GCC ivdep") for (int lane = 0; lane < kLanes; ++lane)
#endif

namespace attnloom::sim::ATTNLOOM_SIM_ISA {

template <class To, class From>
inline To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}

template <class T>
inline T* row(std::byte* registers, std::uint32_t offset) {
  return static_cast<T*>(__builtin_assume_aligned(registers + offset, 64));
}

inline std::uint32_t& predicate(std::byte* registers, std::uint32_t offset) {
  return *reinterpret_cast<std::uint32_t*>(registers + offset);
}

inline void write_predicate(std::byte* registers, std::uint32_t offset, std::uint32_t mask,
                            std::uint32_t value) {
  std::uint32_t& p = predicate(registers, offset);
  p = (p & ~mask) | (value & mask);
}

template <class D>
inline void blend(D* d, const D* t, std::uint32_t mask) {
  ATTNLOOM_LANES d[lane] = (mask >> lane & 1) != 0 ? t[lane] : d[lane];
}

template <class D, class A, class F>
void unary(std::byte* registers, const Ins& ins, std::uint32_t mask) {
  D* d = row<D>(registers, ins.o[0]);
  const A* a = row<A>(registers, ins.o[1]);
  const F f;
  if (mask == ~0u) {
    ATTNLOOM_LANES d[lane] = f(a[lane]);
  } else {
    alignas(64) D t[kLanes];
    ATTNLOOM_LANES t[lane] = f(a[lane]);
    blend(d, t, mask);
  }
}

template <class D, class A, class B, class F>
void binary(std::byte* registers, const Ins& ins, std::uint32_t mask) {
  D* d = row<D>(registers, ins.o[0]);
  const A* a = row<A>(registers, ins.o[1]);
  const B* b = row<B>(registers, ins.o[2]);
  const F f;
  if (mask == ~0u) {
    ATTNLOOM_LANES d[lane] = f(a[lane], b[lane]);
  } else {
    alignas(64) D t[kLanes];
    ATTNLOOM_LANES t[lane] = f(a[lane], b[lane]);
    blend(d, t, mask);
  }
}

template <class D, class A, class B, class C, class F>
void ternary(std::byte* registers, const Ins& ins, std::uint32_t mask) {
  D* d = row<D>(registers, ins.o[0]);
  const A* a = row<A>(registers, ins.o[1]);
  const B* b = row<B>(registers, ins.o[2]);
  const C* c = row<C>(registers, ins.o[3]);
  const F f;
  if (mask == ~0u) {
    ATTNLOOM_LANES d[lane] = f(a[lane], b[lane], c[lane]);
  } else {
    alignas(64) D t[kLanes];
    ATTNLOOM_LANES t[lane] = f(a[lane], b[lane], c[lane]);
    blend(d, t, mask);
  }
}

// For operations that are rare: one lane at a time, with the instruction at hand.
template <class D, class A, class F>
void each_lane(std::byte* registers, const Ins& ins, std::uint32_t mask) {
  D* d = row<D>(registers, ins.o[0]);
  const A* a = row<A>(registers, ins.o[1]);
  const F f;
  for (int lane = 0; lane < kLanes; ++lane) {
    if (mask >> lane & 1) d[lane] = f(a[lane], ins);
  }
}

// The families; each returns nullptr for what it does not know.
LaneFn select_integer(const LaneForm& form);
LaneFn select_bits(const LaneForm& form);
LaneFn select_float(const LaneForm& form);
LaneFn select_half(const LaneForm& form);
LaneFn select_approx(const LaneForm& form);
LaneFn select_compare(const LaneForm& form);
LaneFn select_convert(const LaneForm& form);
LaneFn select_matrix(const LaneForm& form);

}  // namespace attnloom::sim::ATTNLOOM_SIM_ISA
