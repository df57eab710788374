// SPDX-License-Identifier: Apache-2.0
// Spaces, widths, bounds and what was never written.
#include <algorithm>

#include "sim_test.h"

namespace attnloom::sim {
namespace {

const std::string kMine =
    "mul.wide.u32 %x1, %t, 4; add.u64 %x2, %x1, %in; add.u64 %x1, %x1, %out; ";

std::vector<std::uint32_t> iota(std::uint32_t n) {
  std::vector<std::uint32_t> v(n);
  for (std::uint32_t k = 0; k < n; ++k) v[k] = k + 1;
  return v;
}

TEST_CASE("Vectors and narrow types move with the right extension") {
  RunSetup s;
  s.in = {0x8899aabbu, 2, 3, 4};
  s.block = 1;
  RunResult r = run(R"(
  ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%in];
  st.global.v2.u32 [%out], {%r3, %r4};
  ld.global.u8 %h1, [%in+3];  cvt.u32.u16 %r5, %h1;  st.global.u32 [%out+8], %r5;
  ld.global.s8 %r6, [%in+3];  st.global.u32 [%out+12], %r6;
  ld.global.s16 %r7, [%in+2]; st.global.u32 [%out+16], %r7;
  ld.global.v2.u16 {%h2, %h3}, [%in]; mov.b32 %r8, {%h3, %h2}; st.global.u32 [%out+20], %r8;
  st.global.u8 [%out+24], %r1; st.global.u8 [%out+25], 7; st.global.u16 [%out+26], %r2;
  ld.global.s32 %x1, [%in]; st.global.b64 [%out+32], %x1;
)",
                    s);
  CHECK(r.report.findings.empty());
  CHECK(r.out[0] == 3);
  CHECK(r.out[1] == 4);
  CHECK(r.out[2] == 0x88);
  CHECK(r.out[3] == 0xffffff88u);
  CHECK(r.out[4] == 0xffff8899u);
  CHECK(r.out[5] == 0xaabb8899u);
  CHECK(r.out[6] == 0x000207bbu);
  CHECK(r.out[8] == 0x8899aabbu);
  CHECK(r.out[9] == 0xffffffffu);
}

TEST_CASE(
    "Accesses outside name the allocation and the distance; loads give ones, stores nothing") {
  RunSetup s;
  s.in = iota(32);
  RunResult r = run(kMine + "ld.global.u32 %r1, [%x2+64]; st.global.u32 [%x1], %r1;", s);
  REQUIRE(r.find("out-of-bounds") != nullptr);
  CHECK(r.count("out-of-bounds") == 16);
  CHECK(r.find("out-of-bounds")->detail.find("0 bytes past the end of in") != std::string::npos);
  CHECK(r.find("out-of-bounds")->place.starts_with("ptx:"));
  CHECK(r.out[15] == 32);
  CHECK(r.out[16] == 0xffffffffu);
  RunResult w = run(kMine + "st.global.u32 [%x1+4], 5;", s);
  CHECK(w.count("out-of-bounds") == 1);
  RunResult wild = run("mov.u64 %x1, 64; ld.global.u32 %r1, [%x1];", s);
  CHECK(wild.find("out-of-bounds")->detail.find("far from any allocation") != std::string::npos);
  CHECK(run("st.shared.u32 [0], %t;", {}).count("out-of-bounds") == 32);
}

TEST_CASE("Misaligned accesses") {
  RunSetup s;
  s.in = iota(64);
  CHECK(run(kMine + "ld.global.v2.u32 {%r1, %r2}, [%x2];", s).count("misaligned") == 16);
  s.shared_bytes = 64;
  CHECK(run("st.shared.u32 [2], %t;", s).count("misaligned") == 32);
}

TEST_CASE("Memory that nobody wrote") {
  RunSetup s;
  CHECK(run(kMine + "ld.global.u32 %r1, [%x1];", s).count("uninitialised-global") == 32);
  // Lanes that want the same bytes are one.
  CHECK(run("ld.global.u32 %r1, [%out];", s).count("uninitialised-global") == 1);
  s.out_written = true;
  CHECK(run("ld.global.u32 %r1, [%out];", s).report.findings.empty());
  s.out_written = false;
  s.block = 1;
  CHECK(
      run("st.global.u8 [%out], 1; ld.global.u16 %h1, [%out];", s).count("uninitialised-global") ==
      1);
  s.shared_bytes = 64;
  CHECK(run("ld.shared.u32 %r1, [8];", s).count("uninitialised-shared") == 1);
  CHECK(run("st.shared.u16 [8], %t; ld.shared.u32 %r1, [8];", s).count("uninitialised-shared") ==
        1);
  CHECK(run("st.shared.u16 [8], %t; st.shared.u16 [10], %t; ld.shared.u32 %r1, [8];", s)
            .report.findings.empty());
}

TEST_CASE("Generic addresses reach every space") {
  RunSetup s;
  s.in = iota(32);
  RunResult r = run(R"(
  .local .align 8 .b8 depot[16];
  .shared .align 4 .b8 tile[128];
  mov.u64 %x3, depot; cvta.local.u64 %x4, %x3;
  st.u32 [%x4+4], %t; ld.local.u32 %r1, [depot+4];
  mov.u64 %x5, tile; cvta.shared.u64 %x6, %x5; mul.wide.u32 %x7, %t, 4; add.u64 %x8, %x6, %x7;
  st.u32 [%x8], %r1; cvta.to.shared.u64 %x9, %x8; cvt.u32.u64 %r2, %x9; ld.shared.u32 %r3, [%r2];
  isspacep.shared %p1, %x8; isspacep.local %p2, %x4; isspacep.global %p3, %x8;
  @%p1 add.u32 %r3, %r3, 1000; @%p2 add.u32 %r3, %r3, 2000; @%p3 add.u32 %r3, %r3, 4000;
  add.u64 %x10, %out, %x7; st.u32 [%x10], %r3;
)",
                    s);
  CHECK(r.report.findings.empty());
  for (std::uint32_t t = 0; t < 32; ++t) CHECK(r.out[t] == t + 3000);
  CHECK(r.report.counters.spill_bytes == 32 * 8);
}

TEST_CASE("Parameters through an address and as vectors") {
  RunSetup s;
  s.in = iota(4);
  s.block = 1;
  s.n = 77;
  RunResult r =
      run("mov.b64 %x1, in; ld.param.u64 %x2, [%x1+8]; ld.param.v2.u64 {%x3, %x4}, [in]; "
          "ld.param.u32 %r1, [%x1+16]; "
          "sub.u64 %x5, %x4, %x2; cvt.u32.u64 %r2, %x5; add.u32 %r1, %r1, %r2; st.global.u32 "
          "[%x2], %r1;",
          s);
  CHECK(r.report.findings.empty());
  CHECK(r.out[0] == 77);
}

TEST_CASE("Module variables: initial values, pointers, constants, addresses for the host") {
  const std::string scope = R"(
.global .align 4 .u32 count = 5;
.global .align 8 .u64 link = generic(table);
.global .align 4 .f32 table[4] = {0f3F800000, 0f40000000, 0f40400000};
.const .align 4 .b8 fixed[8] = {1, 0, 0, 0, 2};
.visible .global .align 4 .u32 blank;
)";
  RunSetup s;
  s.block = 1;
  RunResult r = run(R"(
  ld.global.u32 %r1, [count]; st.global.u32 [%out], %r1;
  ld.global.u64 %x1, [link]; ld.f32 %r2, [%x1+8]; st.global.u32 [%out+4], %r2;
  ld.const.u32 %r3, [fixed+4]; st.global.u32 [%out+8], %r3;
  ld.global.u32 %r4, [blank]; st.global.u32 [%out+12], %r4;
  ld.global.u32 %r5, [table+12]; st.global.u32 [%out+16], %r5;
)",
                    s, scope);
  CHECK(r.report.findings.empty());
  CHECK(r.out[0] == 5);
  CHECK(r.out[1] == bits(3.0f));
  CHECK(r.out[2] == 2);
  CHECK(r.out[3] == 0);
  CHECK(r.out[4] == 0);

  Memory memory;
  auto module = load_module(kernel_text("", scope));
  REQUIRE(module.ok());
  auto address = symbol_address(**module, memory, "count");
  REQUIRE(address.ok());
  std::uint32_t value = 0;
  REQUIRE(memory.read(*address, std::as_writable_bytes(std::span(&value, 1))).ok());
  CHECK(value == 5);
  CHECK_FALSE(symbol_address(**module, memory, "nothing").ok());
}

TEST_CASE("Atomics return the old value and work on every type") {
  RunSetup s;
  s.in = {10, 0, 0, 0};
  s.out_written = true;
  s.block = 1;
  RunResult r = run(R"(
  atom.global.add.u32 %r1, [%in], 5; st.global.u32 [%out], %r1;
  atom.global.cas.b32 %r2, [%in], 15, 20; st.global.u32 [%out+4], %r2;
  atom.global.exch.b32 %r3, [%in], 7; st.global.u32 [%out+8], %r3;
  atom.global.inc.u32 %r4, [%in], 7; st.global.u32 [%out+12], %r4;
  atom.global.max.s32 %r5, [%in], -1; st.global.u32 [%out+16], %r5;
  atom.global.min.s32 %r6, [%in], -1; st.global.u32 [%out+20], %r6;
  atom.global.min.u32 %r7, [%in], 3; st.global.u32 [%out+24], %r7;
  red.global.add.f32 [%out+28], 0f3FC00000; red.global.add.f32 [%out+28], 0f3F000000;
  atom.global.add.u64 %x1, [%out+32], -1; red.relaxed.gpu.global.add.u64 [%out+32], 3;
)",
                    s);
  CHECK(r.report.findings.empty());
  CHECK(std::vector<std::uint32_t>(r.out.begin(), r.out.begin() + 10) ==
        std::vector<std::uint32_t>{10, 15, 20, 7, 0, 0, 0xffffffffu, bits(2.0f), 2, 0});
  CHECK(r.report.counters.atomics == 11);
}

TEST_CASE("The host's view: labels, ranges, freed memory") {
  Memory memory;
  std::uint64_t a = memory.allocate(64, "a").value(), b = memory.allocate(64, "b").value();
  CHECK(b - a >= std::uint64_t{4} << 30);
  std::byte data[65] = {};
  CHECK_FALSE(memory.write(a, data).ok());
  CHECK(memory.write(a + 1, std::span(data).first(63)).ok());
  CHECK_FALSE(memory.read(a + 64, std::span(data).first(1)).ok());
  CHECK(memory.free(a).ok());
  CHECK_FALSE(memory.free(a).ok());
  CHECK_FALSE(memory.fill(a, 0, 1).ok());
  CHECK_FALSE(memory.allocate(0, "nothing").ok());
}

TEST_CASE("Shared memory in every width and vector") {
  RunSetup s;
  s.in = {0x33221100u, 0x77665544u, 0xbbaa9988u, 0xffeeddccu};
  s.block = 1;
  s.shared_bytes = 64;
  RunResult r = run(R"(
  ld.global.nc.v4.u32 {%r1, %r2, %r3, %r4}, [%in];
  ld.global.nc.L1::no_allocate.L2::128B.v2.u64 {%x1, %x2}, [%in];
  st.shared.v2.u64 [0], {%x2, %x1};
  ld.shared.v4.u16 {%h1, %h2, %h3, %h4}, [0]; mov.b32 %r10, {%h4, %h1};
  ld.shared.v4.u8 {%h1, %h2, %h3, %h4}, [4]; mov.b32 %r11, {%h1, %h4};
  ld.shared.v2.u8 {%h1, %h2}, [14]; mov.b32 %r12, {%h2, %h1};
  ld.shared.u64 %x3, [8]; cvt.u32.u64 %r13, %x3;
  st.shared.v4.u16 [16], {%h1, %h2, %h3, %h4}; st.shared.v2.u16 [24], {%h1, %h3};
  st.shared.v2.u8 [28], {%h4, %h3}; st.shared.v2.u8 [30], {%h2, %h1};
  ld.shared.v4.u32 {%r14, %r15, %r16, %r17}, [16];
  st.global.v4.u32 [%out], {%r10, %r11, %r12, %r13};
  st.global.v4.u32 [%out+16], {%r14, %r15, %r16, %r17};
)",
                    s);
  CHECK(r.report.findings.empty());
  const std::vector<std::uint32_t> want = {0x9988ffeeu, 0x00ff00ccu, 0x00660077u, 0x33221100u,
                                           0x00770066u, 0x00ff00eeu, 0x00ee0066u, 0x6677eeffu};
  CHECK(std::vector<std::uint32_t>(r.out.begin(), r.out.begin() + 8) == want);
}

TEST_CASE("Lanes of one atomic follow each other") {
  RunSetup s;
  s.in = {0, 100, 100, 0, 0, 0};
  s.block = 64;
  s.out_words = 64 + 6;
  s.out_written = true;
  RunResult r = run(kMine + R"(
  atom.global.add.u32 %r1, [%in], 1; st.global.u32 [%x1], %r1;
  sub.s32 %r2, 50, %t;
  red.global.min.s32 [%in+4], %r2; red.global.max.s32 [%in+8], %t; red.global.max.u32 [%in+12], %r2;
  atom.global.cas.b32 %r3, [%in+16], %t, 77; red.global.or.b32 [%in+20], %t;
  bar.sync 0;
  setp.lt.u32 %p1, %t, 6;
  @%p1 ld.relaxed.gpu.global.u32 %r4, [%x2];
  @%p1 st.global.u32 [%x1+256], %r4;
)",
                    s);
  CHECK(r.report.findings.empty());
  std::vector<bool> seen(64);
  for (std::uint32_t t = 0; t < 64; ++t) seen[r.out[t]] = true;
  CHECK(std::count(seen.begin(), seen.end(), true) == 64);
  CHECK(std::vector<std::uint32_t>(r.out.begin() + 64, r.out.end()) ==
        std::vector<std::uint32_t>{64, std::uint32_t(-13), 100, std::uint32_t(-1), 77, 63});
}

TEST_CASE("A float sum in global memory flushes subnormals, one in shared memory keeps them") {
  RunSetup s;
  s.block = 1;
  s.shared_bytes = 16;
  s.out_written = true;
  RunResult r = run(R"(
  st.shared.u32 [0], 1; red.shared.add.f32 [0], 0f00000002; ld.shared.u32 %r1, [0];
  st.global.u32 [%out], %r1;
  st.global.u32 [%out+4], 1; red.global.add.f32 [%out+4], 0f80000002;
)",
                    s);
  CHECK(r.out[0] == 3);
  CHECK(r.out[1] == 0);
}

}  // namespace
}  // namespace attnloom::sim
