// SPDX-License-Identifier: Apache-2.0
// ldmatrix, stmatrix and mma by the fragment layouts of the PTX manual.
#include <cmath>

#include "sim_test.h"

namespace attnloom::sim {
namespace {

std::uint32_t mix(std::uint32_t x) {
  x = (x ^ (x >> 15)) * 0x2c1b3c6du;
  return x ^ (x >> 12);
}

// A small number as 16 bits: k / 8 for k in [-16, 15], exact in both formats.
float small(std::uint32_t seed) {
  return (static_cast<float>(mix(seed) % 32) - 16) / 8;
}
std::uint32_t as_bf16(float f) {
  return bits(f) >> 16;
}
std::uint32_t as_f16(float f) {
  if (f == 0) return 0;
  std::uint32_t u = bits(f);
  return (u >> 16 & 0x8000) | (((u >> 23 & 255) - 112) << 10) | (u >> 13 & 0x3ff);
}

struct Product {
  float a[16][16], b[16][8], c[16][8];  // b[k][n]
};

Product product() {
  Product p;
  for (std::uint32_t r = 0; r < 16; ++r) {
    for (std::uint32_t k = 0; k < 16; ++k) p.a[r][k] = small(r * 16 + k);
    for (std::uint32_t n = 0; n < 8; ++n)
      p.b[r][n] = small(1000 + r * 8 + n), p.c[r][n] = small(2000 + r * 8 + n);
  }
  return p;
}

// in: per lane 4 of A, 2 of B, 4 of C, as the manual lays out m16n8k16.
template <class Encode>
std::vector<std::uint32_t> fragments(const Product& p, Encode encode) {
  std::vector<std::uint32_t> in;
  for (std::uint32_t lane = 0; lane < 32; ++lane) {
    std::uint32_t g = lane / 4, q = lane % 4;
    auto pair = [&](float lo, float hi) { in.push_back(encode(lo) | encode(hi) << 16); };
    pair(p.a[g][2 * q], p.a[g][2 * q + 1]);
    pair(p.a[g + 8][2 * q], p.a[g + 8][2 * q + 1]);
    pair(p.a[g][2 * q + 8], p.a[g][2 * q + 9]);
    pair(p.a[g + 8][2 * q + 8], p.a[g + 8][2 * q + 9]);
    pair(p.b[2 * q][g], p.b[2 * q + 1][g]);
    pair(p.b[2 * q + 8][g], p.b[2 * q + 9][g]);
    for (std::uint32_t row : {g, g + 8}) {
      in.push_back(bits(p.c[row][2 * q]));
      in.push_back(bits(p.c[row][2 * q + 1]));
    }
  }
  return in;
}

const std::string kLoad = R"(
  mul.wide.u32 %x1, %t, 40; add.u64 %x1, %x1, %in;
  ld.global.u32 %r1, [%x1]; ld.global.u32 %r2, [%x1+4]; ld.global.u32 %r3, [%x1+8]; ld.global.u32 %r4, [%x1+12];
  ld.global.u32 %r5, [%x1+16]; ld.global.u32 %r6, [%x1+20];
  ld.global.f32 %r10, [%x1+24]; ld.global.f32 %r11, [%x1+28]; ld.global.f32 %r12, [%x1+32]; ld.global.f32 %r13, [%x1+36];
)";
const std::string kStore = R"(
  mul.wide.u32 %x2, %t, 16; add.u64 %x2, %x2, %out; st.global.v4.u32 [%x2], {%r10, %r11, %r12, %r13};
)";

template <class Encode>
void check_mma(const char* form, int depth, Encode encode) {
  Product p = product();
  RunSetup s;
  s.in = fragments(p, encode);
  s.out_words = 128;
  std::string a = depth == 16 ? "{%r1, %r2, %r3, %r4}, {%r5, %r6}" : "{%r1, %r2}, {%r5}";
  for (Isa isa : {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512}) {
    if (!isa_supported(isa)) continue;
    s.isa = isa;
    RunResult r = run(kLoad + std::string(form) + " {%r10, %r11, %r12, %r13}, " + a +
                          ", {%r10, %r11, %r12, %r13};" + kStore,
                      s);
    CHECK(r.report.findings.empty());
    CHECK(r.report.counters.mma == 1);
    for (std::uint32_t lane = 0; lane < 32; ++lane) {
      for (std::uint32_t j = 0; j < 4; ++j) {
        std::uint32_t row = lane / 4 + 8 * (j / 2), column = 2 * (lane % 4) + j % 2;
        double want = p.c[row][column];
        for (int k = 0; k < depth; ++k) want += double(p.a[row][k]) * p.b[k][column];
        CHECK(as_float(r.out[lane * 4 + j]) == want);  // every product and sum is exact
      }
    }
  }
}

TEST_CASE("mma agrees with the product of the matrices") {
  check_mma("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", 16, as_bf16);
  check_mma("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", 16, as_f16);
  check_mma("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32", 8, as_bf16);
  check_mma("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", 8, as_f16);
}

TEST_CASE("mma gives canonical NaN, the same bits on every instruction set") {
  Product p = product();
  p.a[3][5] = as_float(0x7fc10000u);
  p.b[2][1] = INFINITY;
  RunSetup s;
  s.in = fragments(p, as_bf16);
  s.out_words = 128;
  std::vector<std::uint32_t> first;
  for (Isa isa : {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512}) {
    if (!isa_supported(isa)) continue;
    s.isa = isa;
    RunResult r = run(kLoad +
                          "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%r10, %r11, %r12, "
                          "%r13}, {%r1, %r2, %r3, %r4}, {%r5, %r6}, "
                          "{%r10, %r11, %r12, %r13};" +
                          kStore,
                      s);
    if (first.empty()) first = r.out;
    CHECK(r.out == first);
    CHECK(r.out[3 * 16] == 0x7fffffffu);
  }
}

TEST_CASE("ldmatrix and stmatrix, plain and transposed") {
  // Halves of shared memory are numbered; matrix k, row r lies at (8k + r) * 16.
  const std::string fill = R"(
  shl.b32 %r20, %t, 4; shl.b32 %r21, %t, 3;
  mad.lo.u32 %r22, %r21, 0x10001, 0x10000; add.u32 %r23, %r22, 0x20002; add.u32 %r24, %r22, 0x40004; add.u32 %r25, %r22, 0x60006;
  st.shared.v4.u32 [%r20], {%r22, %r23, %r24, %r25};
)";
  RunSetup s;
  s.shared_bytes = 1024;
  s.out_words = 128;
  auto element = [](std::uint32_t k, std::uint32_t row, std::uint32_t column) {
    return (8 * k + row) * 8 + column;
  };
  RunResult plain = run(
      fill + "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r10, %r11, %r12, %r13}, [%r20];" + kStore,
      s);
  RunResult turned = run(
      fill + "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r10, %r11, %r12, %r13}, [%r20];" +
          kStore,
      s);
  CHECK(plain.report.findings.empty());
  for (std::uint32_t lane = 0; lane < 32; ++lane) {
    for (std::uint32_t k = 0; k < 4; ++k) {
      std::uint32_t g = lane / 4, q = lane % 4;
      CHECK(plain.out[lane * 4 + k] == (element(k, g, 2 * q) | element(k, g, 2 * q + 1) << 16));
      CHECK(turned.out[lane * 4 + k] == (element(k, 2 * q, g) | element(k, 2 * q + 1, g) << 16));
    }
  }
  // Stored transposed and loaded transposed is the identity.
  RunResult round_trip =
      run(fill +
              "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r1, %r2}, [%r20]; "
              "stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%r20+256], {%r1, %r2}; "
              "ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%r10, %r11}, [%r20+256]; mov.u32 "
              "%r12, 0; mov.u32 %r13, 0;" +
              kStore,
          s);
  for (std::uint32_t lane = 0; lane < 32; ++lane)
    CHECK(round_trip.out[lane * 4 + 1] == plain.out[lane * 4 + 1]);
}

TEST_CASE("A warp-wide instruction with missing lanes is found") {
  RunSetup s;
  s.block = 16;
  s.shared_bytes = 512;
  CHECK(run("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%r1, %r2, %r3, %r4}, {%r5, %r6}, "
            "{%r7}, {%r1, %r2, %r3, %r4};",
            s)
            .count("inactive-lanes") == 1);
}

TEST_CASE("movmatrix transposes across the warp") {
  // Half 2l of the matrix in lane l is 2l, its neighbour 2l + 1: element (r, c) is 8r + c.
  RunSetup s;
  RunResult r =
      run("mad.lo.u32 %r1, %t, 0x20002, 0x10000; movmatrix.sync.aligned.m8n8.trans.b16 %r1, %r1; "
          "mul.wide.u32 %x1, %t, 4; add.u64 %x1, %x1, %out; st.global.u32 [%x1], %r1;",
          s);
  CHECK(r.report.findings.empty());
  for (std::uint32_t lane = 0; lane < 32; ++lane) {
    std::uint32_t row = 2 * (lane % 4), column = lane / 4;
    CHECK(r.out[lane] == ((8 * row + column) | (8 * (row + 1) + column) << 16));
  }
}

TEST_CASE("stmatrix of one, two and four matrices puts each row where its lane says") {
  for (std::uint32_t count : {1u, 2u, 4u}) {
    const std::string list = count == 1   ? "{%r1}"
                             : count == 2 ? "{%r1, %r2}"
                                          : "{%r1, %r2, %r3, %r4}";
    RunSetup s;
    s.shared_bytes = 1024;
    s.out_words = 128;
    // Rows are stored in reverse order. A lane then loads the 16 bytes of "its" row.
    RunResult r =
        run("sub.u32 %r9, 31, %t; shl.b32 %r20, %r9, 4; mov.u32 %r10, 0; st.shared.v4.u32 [%r20], "
            "{%r10, %r10, %r10, %r10}; bar.warp.sync -1; "
            "mov.u32 %r1, %t; add.u32 %r2, %t, 100; add.u32 %r3, %t, 200; add.u32 %r4, %t, 300; "
            "stmatrix.sync.aligned.m8n8.x" +
                std::to_string(count) + ".shared.b16 [%r20], " + list +
                "; bar.warp.sync -1; ld.shared.v4.u32 {%r10, %r11, %r12, %r13}, [%r20];" + kStore,
            s);
    CHECK(r.report.findings.empty());
    for (std::uint32_t lane = 0; lane < 32; ++lane) {
      for (std::uint32_t k = 0; k < 4; ++k) {
        const std::uint32_t matrix = lane / 8, row = lane % 8;
        const std::uint32_t want = matrix < count ? 100 * matrix + 4 * row + k : 0;
        CHECK(r.out[lane * 4 + k] == want);
      }
    }
  }
}

}  // namespace
}  // namespace attnloom::sim
