// SPDX-License-Identifier: Apache-2.0
// Lane operations against values worked out by hand or by exact arithmetic on the host.
#include <cmath>
#include <limits>

#include "sim_test.h"

namespace attnloom::sim {
namespace {

const float kInf = std::numeric_limits<float>::infinity();
constexpr std::uint32_t kNan = 0x7fc12345u, kCanonical = 0x7fffffffu,
                        kTiny = 1;  // kTiny: the least subnormal

std::uint32_t one(std::string_view body, std::uint32_t a, std::uint32_t b = 0,
                  std::uint32_t c = 0) {
  return static_cast<std::uint32_t>(lanes(body, {{a, b, c, 0}})[0]);
}
std::uint64_t one_wide(std::string_view body, std::uint64_t a, std::uint64_t b = 0) {
  return lanes(body,
               {{static_cast<std::uint32_t>(a), static_cast<std::uint32_t>(a >> 32),
                 static_cast<std::uint32_t>(b), static_cast<std::uint32_t>(b >> 32)}},
               true)[0];
}

TEST_CASE("Integers wrap, widen and divide") {
  CHECK(one("add.s32 %d, %a, %b;", 0x7fffffff, 1) == 0x80000000u);
  CHECK(one("add.sat.s32 %d, %a, %b;", 0x7fffffff, 1) == 0x7fffffffu);
  CHECK(one("sub.sat.s32 %d, %a, %b;", 0x80000000u, 1) == 0x80000000u);
  CHECK(one("mul.lo.s32 %d, %a, %b;", 0x10001, 0x10001) == 0x20001u);
  CHECK(one("mul.hi.s32 %d, %a, %b;", 0xffffffffu, 2) == 0xffffffffu);
  CHECK(one("mul.hi.u32 %d, %a, %b;", 0xffffffffu, 2) == 1u);
  CHECK(one("mad.lo.s32 %d, %a, %b, %c;", 7, 6, 5) == 47u);
  CHECK(one("div.s32 %d, %a, %b;", 0xfffffff9u, 2) == 0xfffffffdu);
  CHECK(one("rem.s32 %d, %a, %b;", 0xfffffff9u, 2) == 0xffffffffu);
  CHECK(one("div.s32 %d, %a, %b;", 0x80000000u, 0xffffffffu) == 0x80000000u);
  CHECK(one("div.u32 %d, %a, %b;", 7, 0) == 0xffffffffu);
  CHECK(one("min.s32 %d, %a, %b;", 0xffffffffu, 1) == 0xffffffffu);
  CHECK(one("min.u32 %d, %a, %b;", 0xffffffffu, 1) == 1u);
  CHECK(one("abs.s32 %d, %a;", 0xfffffff9u) == 7u);
  CHECK(one("sad.s32 %d, %a, %b, %c;", 0xffffffffu, 2, 10) == 13u);
  CHECK(one_wide("mul.wide.s32 %wd, %a, -4;", 3) == std::uint64_t(-12));
  CHECK(one_wide("mul.wide.u32 %wd, %a, %b;", 0xffffffffffffffffu) == 0xfffffffe00000001u);
  CHECK(one_wide("mad.wide.s32 %wd, %a, 2, %wb;", 5, 100) == 110u);
  CHECK(one_wide("mul.hi.u64 %wd, %wa, %wb;", ~0ull, 4) == 3u);
  CHECK(one_wide("div.s64 %wd, %wa, %wb;", std::uint64_t(-9), 2) == std::uint64_t(-4));
}

TEST_CASE("Bits are shifted, found, cut and permuted") {
  CHECK(one("shl.b32 %d, %a, %b;", 3, 32) == 0u);
  CHECK(one("shr.s32 %d, %a, %b;", 0x80000000u, 40) == 0xffffffffu);
  CHECK(one("shr.u32 %d, %a, %b;", 0x80000000u, 31) == 1u);
  CHECK(one("shf.l.wrap.b32 %d, %a, %b, %c;", 0x80000001u, 0x2, 1) == 5u);
  CHECK(one("shf.r.clamp.b32 %d, %a, %b, %c;", 0x1, 0x2, 40) == 2u);
  CHECK(one("shf.l.clamp.b32 %d, %a, %b, %c;", 0x1, 0x2, 40) == 1u);
  CHECK(one("shf.r.wrap.b32 %d, %a, %b, %c;", 0x10, 0x2, 36) == 0x20000001u);
  CHECK(one("popc.b32 %d, %a;", 0xf0f0u) == 8u);
  CHECK(one("popc.b64 %d, %wa;", 0xf0f0u, 1) == 9u);
  CHECK(one("clz.b64 %d, %wa;", 5, 0) == 61u);
  CHECK(one("clz.b32 %d, %a;", 0) == 32u);
  CHECK(one("brev.b32 %d, %a;", 1) == 0x80000000u);
  CHECK(one("bfind.u32 %d, %a;", 0x100) == 8u);
  CHECK(one("bfind.shiftamt.u32 %d, %a;", 0x100) == 23u);
  CHECK(one("bfind.s32 %d, %a;", 0xffffffffu) == 0xffffffffu);
  CHECK(one("bfe.u32 %d, %a, 4, 8;", 0xabcdu) == 0xbcu);
  CHECK(one("bfe.s32 %d, %a, 4, 8;", 0xabcdu) == 0xffffffbcu);
  CHECK(one("bfe.u32 %d, %a, 28, 8;", 0xf0000000u) == 0xfu);
  CHECK(one("bfe.s32 %d, %a, 28, 8;", 0x90000000u) == 0xfffffff9u);
  CHECK(one("bfe.u32 %d, %a, 4, 0;", 0xffffffffu) == 0u);
  CHECK(one_wide("bfe.u64 %wd, %wa, 28, 8;", 0xabcdef0123456789u) == 0x12u);
  CHECK(one("bfi.b32 %d, %a, %b, 8, 4;", 0xff, 0) == 0xf00u);
  CHECK(one("bfi.b32 %d, %a, %b, 28, 8;", 0xff, 1) == 0xf0000001u);
  CHECK(one_wide("bfi.b64 %wd, %wa, %wb, 60, 64;", 0xf, 1) == 0xf000000000000001u);
  CHECK(one_wide("brev.b64 %wd, %wa;", 6) == 0x6000000000000000u);
  CHECK(one("prmt.b32 %d, %a, %b, 0x7610;", 0x33221100u, 0x77665544u) == 0x77661100u);
  CHECK(one("prmt.b32 %d, %a, %b, 0x8888;", 0x80u, 0) == 0xffffffffu);
  CHECK(one("lop3.b32 %d, %a, %b, %c, 0x96;", 0xff00ff00u, 0x0ff00ff0u, 0x12345678u) ==
        (0xff00ff00u ^ 0x0ff00ff0u ^ 0x12345678u));
  CHECK(one("lop3.b32 %d, %a, %b, %c, 0xe8;", 0b1100, 0b1010, 0b0110) == 0b1110u);
  CHECK(one("mov.b32 {%h0, %h1}, %a; mov.b32 %d, {%h1, %h0};", 0x12345678u) == 0x56781234u);
  CHECK(one("cnot.b32 %d, %a;", 0) == 1u);
  CHECK(one_wide("mov.b64 {%r1, %r2}, %wa; mov.b64 %wd, {%r2, %r1};", 0x1111111122222222u) ==
        0x2222222211111111u);
}

TEST_CASE("f32 is IEEE, with canonical NaN and both kinds of subnormals") {
  CHECK(one("add.f32 %d, %a, %b;", bits(1.0f), bits(0x1p-24f)) == bits(1.0f));
  CHECK(one("add.f32 %d, %a, %b;", kNan, bits(1.0f)) == kCanonical);
  CHECK(one("sub.f32 %d, %a, %b;", bits(kInf), bits(kInf)) == kCanonical);
  CHECK(one("mul.f32 %d, %a, %b;", kTiny, bits(2.0f)) == 2u);
  CHECK(one("mul.ftz.f32 %d, %a, %b;", kTiny | 0x80000000u, bits(2.0f)) == 0x80000000u);
  CHECK(one("mul.sat.f32 %d, %a, %b;", bits(3.0f), bits(2.0f)) == bits(1.0f));
  CHECK(one("add.sat.f32 %d, %a, %b;", kNan, bits(2.0f)) == 0u);
  // One rounding: (1 + 2^-12)^2 - 1 is exact as a fused operation only.
  CHECK(one("fma.rn.f32 %d, %a, %a, %b;", bits(1.0f + 0x1p-12f), bits(-1.0f)) ==
        bits(0x1p-11f + 0x1p-24f));
  CHECK(one("div.rn.f32 %d, %a, %b;", bits(1.0f), bits(3.0f)) == 0x3eaaaaabu);
  CHECK(one("div.rn.f32 %d, %a, %b;", bits(1.0f), 0x80000000u) == bits(-kInf));
  CHECK(one("rcp.rn.f32 %d, %a;", bits(0.0f)) == bits(kInf));
  CHECK(one("sqrt.rn.f32 %d, %a;", bits(2.0f)) == 0x3fb504f3u);
  CHECK(one("sqrt.rn.f32 %d, %a;", bits(-1.0f)) == kCanonical);
  // Of the approximate forms the manual fixes special values only; ours are correctly rounded.
  CHECK(one("sqrt.approx.ftz.f32 %d, %a;", kTiny | 0x80000000u) == 0x80000000u);
  CHECK(one("sqrt.approx.f32 %d, %a;", bits(kInf)) == bits(kInf));
  CHECK(one("rcp.approx.ftz.f32 %d, %a;", kTiny) == bits(kInf));
  CHECK(one("rcp.approx.f32 %d, %a;", bits(-kInf)) == 0x80000000u);
  CHECK(one("rsqrt.approx.ftz.f32 %d, %a;", kTiny | 0x80000000u) == bits(-kInf));
  CHECK(one("rsqrt.approx.f32 %d, %a;", bits(-1.0f)) == kCanonical);
  CHECK(one("div.full.f32 %d, %a, %b;", bits(6.0f), bits(3.0f)) == bits(2.0f));
  CHECK(one("div.approx.f32 %d, %a, %b;", bits(0.0f), bits(0.0f)) == kCanonical);
  CHECK(one("sin.approx.f32 %d, %a;", bits(kInf)) == kCanonical);
  CHECK(one("sin.approx.ftz.f32 %d, %a;", kTiny | 0x80000000u) == 0x80000000u);
  CHECK(one("cos.approx.f32 %d, %a;", kTiny) == bits(1.0f));
  CHECK(one("abs.ftz.f32 %d, %a;", kTiny | 0x80000000u) == 0u);
  CHECK(one("neg.f32 %d, %a;", 0) == 0x80000000u);
  CHECK(one("copysign.f32 %d, %a, %b;", bits(-1.0f), bits(2.0f)) == bits(-2.0f));
}

TEST_CASE("min and max: NaN, signed zeros") {
  CHECK(one("max.f32 %d, %a, %b;", kNan, bits(1.0f)) == bits(1.0f));
  CHECK(one("max.f32 %d, %a, %b;", bits(1.0f), kNan) == bits(1.0f));
  CHECK(one("max.f32 %d, %a, %b;", kNan, kNan) == kCanonical);
  CHECK(one("max.NaN.f32 %d, %a, %b;", bits(1.0f), kNan) == kCanonical);
  CHECK(one("max.f32 %d, %a, %b;", 0x80000000u, 0) == 0u);
  CHECK(one("min.f32 %d, %a, %b;", 0, 0x80000000u) == 0x80000000u);
  CHECK(one("min.f32 %d, %a, %b;", bits(-kInf), bits(3.0f)) == bits(-kInf));
}

TEST_CASE("Directed rounding") {
  std::uint32_t a = bits(1.0f), b = bits(0x1p-30f), up = bits(1.0f + 0x1p-23f),
                below = bits(1.0f - 0x1p-24f);
  CHECK(one("add.rz.f32 %d, %a, %b;", a, b) == a);
  CHECK(one("add.rp.f32 %d, %a, %b;", a, b) == up);
  CHECK(one("add.rm.f32 %d, %a, %b;", a, b) == a);
  CHECK(one("sub.rm.f32 %d, %a, %b;", a, b) == below);
  CHECK(one("sub.rz.f32 %d, %a, %b;", a, b) == below);
  CHECK(one("fma.rm.f32 %d, %a, %a, %b;", a, bits(-0x1p-60f)) == below);
  CHECK(one("fma.rp.f32 %d, %a, %a, %b;", a, bits(0x1p-100f)) == up);
  CHECK(one("mul.rz.f32 %d, %a, %a;", bits(3e38f)) == 0x7f7fffffu);
  CHECK(one("mul.rp.f32 %d, %a, %a;", bits(3e38f)) == bits(kInf));
  CHECK(one("add.rm.f32 %d, %a, %b;", a, bits(-1.0f)) == 0x80000000u);
  CHECK(one("add.rp.ftz.f32 %d, %a, %b;", a, kTiny) == a);
  CHECK(one("add.rp.f32 %d, %a, %b;", a, kTiny) == up);
  CHECK(one("mul.rz.ftz.f32 %d, %a, %b;", bits(-0x1p-100f), bits(0x1p-30f)) == 0x80000000u);
  CHECK(one("fma.rp.ftz.sat.f32 %d, %a, %b, %a;", a, bits(0x1p-30f)) == a);
  CHECK(one("add.rz.f32 %d, %a, %b;", a, bits(-1.0f)) == 0u);
}

TEST_CASE("Approximations stay within the documented error") {
  auto relative = [](float got, double want) { return std::fabs(got - want) / std::fabs(want); };
  for (double x = -30.25; x < 30; x += 1.37) {
    float f = static_cast<float>(x);
    CHECK(relative(as_float(one("ex2.approx.ftz.f32 %d, %a;", bits(f))), std::exp2(double(f))) <
          0x1p-22);
    if (x > -9)
      CHECK(std::fabs(as_float(one("tanh.approx.f32 %d, %a;", bits(f))) - std::tanh(double(f))) <=
            0x1p-11 * std::fabs(std::tanh(double(f))));
    if (f > 0)
      CHECK(std::fabs(as_float(one("lg2.approx.f32 %d, %a;", bits(f))) - std::log2(double(f))) <
            0x1p-22 * std::fmax(1.0, std::log2(double(f))));
    if (f > 0)
      CHECK(relative(as_float(one("rsqrt.approx.f32 %d, %a;", bits(f))), 1 / std::sqrt(double(f))) <
            0x1p-22);
    if (std::fabs(f) < 3.1f)
      CHECK(std::fabs(as_float(one("sin.approx.f32 %d, %a;", bits(f))) - std::sin(double(f))) <
            0x1p-20);
    if (std::fabs(f) < 3.1f)
      CHECK(std::fabs(as_float(one("cos.approx.f32 %d, %a;", bits(f))) - std::cos(double(f))) <
            0x1p-20);
  }
  CHECK(one("ex2.approx.f32 %d, %a;", bits(-kInf)) == 0u);
  CHECK(one("ex2.approx.f32 %d, %a;", bits(-149.0f)) == 1u);
  CHECK(one("ex2.approx.ftz.f32 %d, %a;", bits(-140.0f)) == 0u);
  CHECK(one("ex2.approx.f32 %d, %a;", bits(200.0f)) == bits(kInf));
  CHECK(one("ex2.approx.f32 %d, %a;", bits(3.0f)) == bits(8.0f));
  CHECK(one("ex2.approx.f32 %d, %a;", kNan) == kCanonical);
  CHECK(one("lg2.approx.f32 %d, %a;", 0) == bits(-kInf));
  CHECK(one("lg2.approx.f32 %d, %a;", bits(-1.0f)) == kCanonical);
  CHECK(one("lg2.approx.f32 %d, %a;", bits(8.0f)) == bits(3.0f));
  CHECK(one("tanh.approx.f32 %d, %a;", bits(40.0f)) == bits(1.0f));
}

TEST_CASE("Comparisons, also unordered, and what they are combined with") {
  auto setp = [](std::string_view form, std::uint32_t a, std::uint32_t b) {
    return one("setp." + std::string(form) + " %p1, %a, %b; selp.u32 %d, 1, 0, %p1;", a, b);
  };
  CHECK(setp("lt.f32", kNan, bits(1.0f)) == 0u);
  CHECK(setp("ne.f32", kNan, bits(1.0f)) == 0u);
  CHECK(setp("neu.f32", kNan, bits(1.0f)) == 1u);
  CHECK(setp("geu.f32", kNan, bits(1.0f)) == 1u);
  CHECK(setp("geu.f32", bits(0.5f), bits(1.0f)) == 0u);
  CHECK(setp("num.f32", kNan, bits(1.0f)) == 0u);
  CHECK(setp("nan.f32", kNan, bits(1.0f)) == 1u);
  CHECK(setp("eq.ftz.f32", kTiny, 0) == 1u);
  CHECK(setp("eq.f32", kTiny, 0) == 0u);
  CHECK(setp("lt.s32", 0xffffffffu, 0) == 1u);
  CHECK(setp("lt.u32", 0xffffffffu, 0) == 0u);
  CHECK(setp("hs.u32", 0xffffffffu, 0) == 1u);
  CHECK(one("setp.eq.s32 %p2, %c, 1; setp.gt.and.s32 %p1|%p3, %a, %b, !%p2; selp.u32 %r1, 1, 0, "
            "%p1; selp.u32 %r2, 2, 0, %p3; add.u32 %d, %r1, %r2;",
            5, 3, 0) == 1u);
  CHECK(one("setp.eq.s32 %p2, %c, 1; setp.gt.and.s32 %p1|%p3, %a, %b, !%p2; selp.u32 %r1, 1, 0, "
            "%p1; selp.u32 %r2, 2, 0, %p3; add.u32 %d, %r1, %r2;",
            1, 3, 0) == 2u);
  CHECK(one("setp.eq.s32 %p2, %c, 1; setp.gt.and.s32 %p1|%p3, %a, %b, !%p2; selp.u32 %r1, 1, 0, "
            "%p1; selp.u32 %r2, 2, 0, %p3; add.u32 %d, %r1, %r2;",
            5, 3, 1) == 0u);
  CHECK(one("testp.subnormal.f32 %p1, %a; selp.u32 %d, 1, 0, %p1;", kTiny) == 1u);
  CHECK(one("slct.u32.f32 %d, %a, %b, %c;", 1, 2, bits(-1.0f)) == 2u);
  CHECK(one("set.lt.u32.s32 %d, %a, %b;", 1, 2) == 0xffffffffu);
}

TEST_CASE("Halves: one rounding, pairs apart") {
  auto h = [](std::string_view op, std::uint32_t a, std::uint32_t b, std::uint32_t c) {
    return one("cvt.u16.u32 %h1, %a; cvt.u16.u32 %h2, %b; cvt.u16.u32 %h3, %c; " + std::string(op) +
                   " cvt.u32.u16 %d, %h0;",
               a, b, c);
  };
  CHECK(h("add.f16 %h0, %h1, %h2;", 0x3c00, 0x1000, 0) == 0x3c00u);  // 1 + 2^-11: tie to even
  CHECK(h("add.f16 %h0, %h1, %h2;", 0x3c01, 0x1000, 0) == 0x3c02u);
  CHECK(h("mul.f16 %h0, %h1, %h2;", 0x7bff, 0x4000, 0) == 0x7c00u);
  CHECK(h("mul.f16 %h0, %h1, %h2;", 0x0001, 0x3800, 0) ==
        0u);  // half the least subnormal: tie to even
  // (1 + 2^-10) * (1 + 2^-10) + 2^-24: the product's tail decides; two roundings would tie.
  CHECK(h("fma.rn.f16 %h0, %h1, %h2, %h3;", 0x3c01, 0x3c01, 0x0001) == 0x3c02u);
  CHECK(h("fma.rn.bf16 %h0, %h1, %h2, %h3;", 0x3f80, 0x3f80, 0x0001) == 0x3f80u);
  CHECK(h("fma.rn.bf16 %h0, %h1, %h2, %h3;", 0x3f81, 0x3f81, 0x0000) == 0x3f82u);
  CHECK(h("max.f16 %h0, %h1, %h2;", 0x7e00, 0x3c00, 0) == 0x3c00u);
  CHECK(h("max.NaN.f16 %h0, %h1, %h2;", 0x7e00, 0x3c00, 0) == 0x7fffu);
  CHECK(one("add.f16x2 %d, %a, %b;", 0x3c003c00u, 0x40003c00u) == 0x42004000u);
  CHECK(one("mul.f16x2 %d, %a, %b;", 0x3c01bc00u, 0x3c014000u) == 0x3c02c000u);
  CHECK(one("mul.bf16x2 %d, %a, %b;", 0x3f814040u, 0x3f81c000u) == 0x3f82c0c0u);
  CHECK(one("add.bf16x2 %d, %a, %b;", 0x3f803f81u, 0x3b803b80u) == 0x3f803f82u);  // ties to even
  CHECK(one("sub.f16x2 %d, %a, %b;", 0x7c003c00u, 0x7c003c00u) == 0x7fff0000u);
  CHECK(one("fma.rn.f16x2 %d, %a, %b, %c;", 0x3c014000u, 0x3c014200u, 0x0001bc00u) == 0x3c024500u);
  CHECK(one("max.bf16x2 %d, %a, %b;", 0x3f80c000u, 0x7fc03f80u) == 0x3f803f80u);
  CHECK(one("neg.bf16x2 %d, %a;", 0x3f80c000u) == 0xbf804000u);
  CHECK(one("ex2.approx.f16x2 %d, %a;", 0x4200bc00u) == 0x48003800u);
  CHECK(one("ex2.approx.ftz.bf16x2 %d, %a;", 0x4040bf80u) == 0x41003f00u);
  CHECK(one("ex2.approx.ftz.bf16x2 %d, %a;", 0xc3000000u) == 0x00003f80u);  // 2^-128 flushed
  CHECK(one("fma.rn.bf16x2 %d, %a, %b, %c;", 0x3f804000u, 0x40404040u, 0x3f800000u) == 0x408040c0u);
  CHECK(one("fma.rn.relu.bf16x2 %d, %a, %b, %c;", 0xbf804000u, 0x40404040u, 0) == 0x000040c0u);
}

TEST_CASE("f64") {
  CHECK(one_wide("add.f64 %wd, %wa, %wb;", bits(0.1), bits(0.2)) == bits(0.1 + 0.2));
  CHECK(one_wide("fma.rn.f64 %wd, %wa, %wa, %wb;", bits(1 + 0x1p-30), bits(-1.0)) ==
        bits(0x1p-29 + 0x1p-60));
  CHECK(one_wide("div.rn.f64 %wd, %wa, %wb;", bits(1.0), bits(3.0)) == bits(1.0 / 3.0));
  CHECK(one_wide("sqrt.rn.f64 %wd, %wa;", bits(2.0)) == bits(std::sqrt(2.0)));
}

TEST_CASE("A partial warp changes its own lanes only") {
  std::vector<LaneCase> cases;
  for (std::uint32_t k = 0; k < 32; ++k) cases.push_back({k, 100, 0, 0});
  auto out = lanes(
      "mov.b32 %d, 7; setp.lt.u32 %p1, %a, 5; @%p1 add.u32 %d, %a, %b; @!%p1 sub.u32 %d, %b, %a;",
      cases);
  for (std::uint32_t k = 0; k < 32; ++k) CHECK(out[k] == (k < 5 ? 100 + k : 100 - k));
}

}  // namespace
}  // namespace attnloom::sim
