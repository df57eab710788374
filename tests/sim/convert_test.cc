// SPDX-License-Identifier: Apache-2.0
// cvt in all its forms, against worked values.
#include <cmath>
#include <limits>

#include "sim_test.h"

namespace attnloom::sim {
namespace {

const float kInf = std::numeric_limits<float>::infinity();
constexpr std::uint32_t kNan = 0x7fc12345u;

std::uint32_t one(const std::string& body, std::uint32_t a, std::uint32_t b = 0) {
  return static_cast<std::uint32_t>(lanes(body, {{a, b, 0, 0}})[0]);
}
std::uint64_t one_wide(const std::string& body, std::uint64_t a) {
  return lanes(body, {{static_cast<std::uint32_t>(a), static_cast<std::uint32_t>(a >> 32), 0, 0}},
               true)[0];
}

TEST_CASE("Floats become integers: rounding, clamping, NaN") {
  CHECK(one("cvt.rzi.s32.f32 %d, %a;", bits(-2.9f)) == std::uint32_t(-2));
  CHECK(one("cvt.rni.s32.f32 %d, %a;", bits(2.5f)) == 2u);
  CHECK(one("cvt.rni.s32.f32 %d, %a;", bits(3.5f)) == 4u);
  CHECK(one("cvt.rmi.s32.f32 %d, %a;", bits(-2.1f)) == std::uint32_t(-3));
  CHECK(one("cvt.rpi.s32.f32 %d, %a;", bits(2.1f)) == 3u);
  CHECK(one("cvt.rzi.s32.f32 %d, %a;", bits(3e9f)) == 0x7fffffffu);
  CHECK(one("cvt.rzi.s32.f32 %d, %a;", bits(-3e9f)) == 0x80000000u);
  CHECK(one("cvt.rzi.s32.f32 %d, %a;", kNan) == 0u);
  CHECK(one("cvt.rzi.u32.f32 %d, %a;", bits(-1.0f)) == 0u);
  CHECK(one("cvt.rzi.u32.f32 %d, %a;", bits(5e9f)) == 0xffffffffu);
  CHECK(one_wide("cvt.rzi.s64.f32 %wd, %a;", bits(-kInf)) == 0x8000000000000000u);
  CHECK(one_wide("cvt.rzi.u64.f64 %wd, %wa;", bits(1e30)) == ~0ull);
  CHECK(one("cvt.rni.f32.f32 %d, %a;", bits(-0.4f)) == 0x80000000u);
  CHECK(one("cvt.rmi.f32.f32 %d, %a;", bits(-0.4f)) == bits(-1.0f));
  CHECK(one("cvt.sat.f32.f32 %d, %a;", bits(1.5f)) == bits(1.0f));
}

TEST_CASE("Integers become floats and other integers") {
  CHECK(one("cvt.rn.f32.s32 %d, %a;", 0xffffffffu) == bits(-1.0f));
  CHECK(one("cvt.rn.f32.u32 %d, %a;", 0xffffffffu) == bits(0x1p32f));
  CHECK(one("cvt.rz.f32.u32 %d, %a;", 0xffffffffu) == 0x4f7fffffu);
  CHECK(one("cvt.rn.f32.u64 %d, %wa;", 1, 1) == bits(0x1p32f));
  CHECK(one("cvt.rp.f32.u64 %d, %wa;", 1, 1) == bits(0x1p32f) + 1);
  CHECK(one_wide("cvt.rn.f64.s64 %wd, %wa;", ~0ull) == bits(-1.0));
  CHECK(one_wide("cvt.s64.s32 %wd, %a;", 0x80000000u) == 0xffffffff80000000u);
  CHECK(one_wide("cvt.u64.u32 %wd, %a;", 0x80000000u) == 0x80000000u);
  CHECK(one("cvt.s32.s8 %d, %a;", 0x1ff) == 0xffffffffu);
  CHECK(one("cvt.u32.u8 %d, %a;", 0x1ff) == 0xffu);
  CHECK(one("cvt.s32.s16 %d, %a;", 0x18000) == 0xffff8000u);
  CHECK(one("cvt.sat.u8.s32 %h1, %a; cvt.u32.u16 %d, %h1;", 300) == 255u);
  CHECK(one("cvt.sat.s8.s32 %h1, %a; cvt.s32.s16 %d, %h1;", std::uint32_t(-300)) ==
        std::uint32_t(-128));
}

TEST_CASE("16-bit floats") {
  auto down = [](const char* form, float f) {
    return one("cvt." + std::string(form) + " %h1, %a; cvt.u32.u16 %d, %h1;", bits(f));
  };
  CHECK(down("rn.f16.f32", 1.0f) == 0x3c00u);
  CHECK(down("rn.f16.f32", 65519.0f) == 0x7bffu);
  CHECK(down("rn.f16.f32", 65520.0f) == 0x7c00u);
  CHECK(down("rz.f16.f32", 65535.0f) == 0x7bffu);
  CHECK(down("rn.f16.f32", 0x1p-24f) == 1u);
  CHECK(down("rn.f16.f32", 0x1p-25f) == 0u);
  CHECK(down("rn.f16.f32", 0x1.8p-25f) == 1u);
  CHECK(down("rp.f16.f32", 0x1p-40f) == 1u);
  CHECK(down("rn.f16.f32", -0x1.ff8p-15f) == 0x83ffu);
  CHECK(down("rn.bf16.f32", 1.0f + 0x1p-8f) == 0x3f80u);
  CHECK(down("rn.bf16.f32", 1.0f + 0x1.8p-7f) == 0x3f82u);
  CHECK(down("rz.bf16.f32", -1.99999f) == 0xbfffu);
  CHECK(down("rn.bf16.f32", 3.4e38f) == 0x7f80u);
  CHECK(one("cvt.rn.f16.f32 %h1, %a; cvt.u32.u16 %d, %h1;", kNan) == 0x7fffu);
  CHECK(one("cvt.u16.u32 %h1, %a; cvt.f32.f16 %d, %h1;", 0x0001) == bits(0x1p-24f));
  CHECK(one("cvt.u16.u32 %h1, %a; cvt.f32.f16 %d, %h1;", 0xfc00) == bits(-kInf));
  CHECK(one("cvt.u16.u32 %h1, %a; cvt.f32.bf16 %d, %h1;", 0x4049) == 0x40490000u);
  CHECK(one("cvt.rn.bf16x2.f32 %d, %a, %b;", bits(2.0f), bits(1.0f)) == 0x40003f80u);
  CHECK(one("cvt.rn.f16x2.f32 %d, %a, %b;", bits(2.0f), bits(-1.0f)) == 0x4000bc00u);
  CHECK(one("cvt.rz.f16x2.f32 %d, %a, %b;", bits(65535.0f), bits(-65535.0f)) == 0x7bfffbffu);
  CHECK(one("cvt.rn.relu.bf16x2.f32 %d, %a, %b;", bits(2.0f), bits(-1.0f)) == 0x40000000u);
  CHECK(one("cvt.rna.tf32.f32 %d, %a;", bits(1.0f + 0x1p-11f)) == bits(1.0f + 0x1p-10f));
}

TEST_CASE("f64 to f32, one rounding from integers too") {
  CHECK(one("cvt.rn.f32.f64 %d, %wa;", 0xffffffffu, 0x3fefffffu) == bits(1.0f));
  CHECK(one("cvt.rz.f32.f64 %d, %wa;", 0xffffffffu, 0x3fefffffu) == 0x3f7fffffu);
  CHECK(one_wide("cvt.f64.f32 %wd, %a;", bits(0.1f)) == bits(double(0.1f)));
  CHECK(one("cvt.rn.f32.s64 %d, %wa;", 1, 0x40000000u) == 0x5e800000u);
}

TEST_CASE("8-bit floats") {
  auto pack = [](const char* type, float hi, float lo) {
    return one("cvt.rn.satfinite." + std::string(type) + ".f32 %h1, %a, %b; cvt.u32.u16 %d, %h1;",
               bits(hi), bits(lo));
  };
  CHECK(pack("e4m3x2", 1.0f, -2.0f) == 0x38c0u);
  CHECK(pack("e4m3x2", 1000.0f, -1000.0f) == 0x7efeu);
  CHECK(pack("e4m3x2", 0x1p-9f, 0x1p-10f) == 0x0100u);
  CHECK(pack("e4m3x2", 464.0f, 17.0f) == 0x7e58u);
  CHECK(pack("e5m2x2", 1.0f, 70000.0f) == 0x3c7bu);
  CHECK(one("cvt.rn.satfinite.e4m3x2.f32 %h1, %a, %b; cvt.u32.u16 %d, %h1;", kNan, bits(0.0f)) ==
        0x7f00u);
  CHECK(one("cvt.u16.u32 %h1, %a; cvt.rn.f16x2.e4m3x2 %d, %h1;", 0x3801u) == 0x3c001800u);
  CHECK(one("cvt.u16.u32 %h1, %a; cvt.rn.f16x2.e4m3x2 %d, %h1;", 0x7f7eu) == 0x7fff5f00u);
  CHECK(one("cvt.u16.u32 %h1, %a; cvt.rn.f16x2.e5m2x2 %d, %h1;", 0x3cc0u) == 0x3c00c000u);
  CHECK(one("cvt.rn.satfinite.e4m3x2.f16x2 %h1, %a; cvt.u32.u16 %d, %h1;", 0x3c00c000u) == 0x38c0u);
}

// The value of an 8-bit code, from the definition of the format.
float fp8_value(std::uint32_t code, int mantissa_bits, int bias) {
  std::uint32_t exponent = code >> mantissa_bits & ((1u << (7 - mantissa_bits)) - 1);
  std::uint32_t mantissa = code & ((1u << mantissa_bits) - 1);
  double scale = std::ldexp(1.0, static_cast<int>(exponent == 0 ? 1 : exponent) - bias);
  double significand = (exponent == 0 ? 0.0 : 1.0) + std::ldexp(mantissa, -mantissa_bits);
  return static_cast<float>((code >> 7 != 0 ? -1.0 : 1.0) * scale * significand);
}

TEST_CASE("Every 8-bit code to f16 and back; between two codes the even one wins a tie") {
  struct Format {
    std::string name;
    int mantissa_bits, bias;
    std::uint32_t largest;
  };
  for (const Format& f : {Format{"e4m3x2", 3, 7, 0x7e}, Format{"e5m2x2", 2, 15, 0x7b}}) {
    std::string to_f32 = "cvt.u16.u32 %h1, %a; cvt.rn.f16x2." + f.name +
                         " %r1, %h1; mov.b32 {%h2, %h3}, %r1; cvt.f32.f16 %d, %h3;";
    std::string from_f32 = "cvt.rn.satfinite." + f.name + ".f32 %h1, %a, %b; cvt.u32.u16 %d, %h1;";
    std::string from_f16 = "cvt.rn.f16x2.f32 %r1, %a, %b; cvt.rn.satfinite." + f.name +
                           ".f16x2 %h1, %r1; cvt.u32.u16 %d, %h1;";
    for (std::uint32_t first = 0; first < 256; first += 32) {
      std::vector<LaneCase> codes, values, ties;
      for (std::uint32_t code = first; code < first + 32; ++code) {
        float value = fp8_value(code, f.mantissa_bits, f.bias);
        float next = fp8_value(code + 1, f.mantissa_bits, f.bias);
        codes.push_back({code << 8 | 1, 0, 0, 0});
        values.push_back({bits(value), bits(fp8_value(1, f.mantissa_bits, f.bias)), 0, 0});
        ties.push_back({bits((value + next) / 2), bits(0.0f), 0, 0});
      }
      auto up = lanes(to_f32, codes), down = lanes(from_f32, values),
           down16 = lanes(from_f16, values), tied = lanes(from_f32, ties);
      for (std::uint32_t k = 0; k < 32; ++k) {
        std::uint32_t code = first + k, magnitude = code & 0x7f;
        if (magnitude > f.largest) continue;  // infinity and NaN: worked values above
        CHECK(up[k] == values[k].a);
        CHECK(down[k] == (code << 8 | 1));
        CHECK(down16[k] == (code << 8 | 1));
        if (magnitude < f.largest) CHECK(tied[k] >> 8 == code + (code & 1));
      }
    }
  }
  CHECK(one("cvt.u16.u32 %h1, %a; cvt.rn.f16x2.e5m2x2 %d, %h1;", 0x7cfdu) == 0x7c007fffu);
  CHECK(one("cvt.rn.satfinite.e5m2x2.f32 %h1, %a, %b; cvt.u32.u16 %d, %h1;", bits(-kInf), kNan) ==
        0xfb7fu);
  CHECK(one("cvt.rn.satfinite.e4m3x2.f16x2 %h1, %a; cvt.u32.u16 %d, %h1;", 0xfc007e00u) == 0xfe7fu);
  CHECK(one("cvt.rn.satfinite.relu.e4m3x2.f32 %h1, %a, %b; cvt.u32.u16 %d, %h1;", bits(-2.0f),
            bits(2.0f)) == 0x0040u);
}

}  // namespace
}  // namespace attnloom::sim
