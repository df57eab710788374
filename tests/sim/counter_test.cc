// SPDX-License-Identifier: Apache-2.0
// Counters against counts by hand.
#include "sim_test.h"

namespace attnloom::sim {
namespace {

Counters count(const std::string& body, unsigned block = 32) {
  RunSetup s;
  s.block = block;
  s.in = std::vector<std::uint32_t>(2048, 1);
  s.out_words = 2048;
  s.shared_bytes = 8192;
  return run(body, s).report.counters;
}

// The frame of kernel_text: 4 instructions before the body, ret after it.
constexpr std::uint64_t kFrame = 5;

TEST_CASE("Instructions are counted once, those of the decoder not at all") {
  CHECK(count("").instructions == kFrame);
  CHECK(count("add.u32 %d, %t, 1; mov.b32 {%h1, %h2}, %d; setp.eq.and.u32 %p1, %d, 1, !%p2;")
            .instructions == kFrame + 3);
  CHECK(count("setp.eq.u32 %p1, %t, 99; @%p1 add.u32 %d, %t, 1;").instructions == kFrame + 2);
  CHECK(count("add.u32 %d, %t, 1;", 128).instructions == 4 * (kFrame + 1));
  // Both sides of a branch run: 1 + 1 + (2 + 1) + 0.
  CHECK(count("setp.lt.u32 %p1, %t, 9; @%p1 bra A; mov.u32 %d, 1; bra.uni B; A: mov.u32 %d, 2; B:")
            .instructions == kFrame + 5);
}

TEST_CASE("Sectors of global loads and stores") {
  const std::string at =
      "mul.wide.u32 %x1, %t, %n; mul.lo.u32 %r1, %t, STRIDE; cvt.u64.u32 %x1, %r1; add.u64 %x2, "
      "%x1, %in; add.u64 %x3, %x1, %out; ";
  auto strided = [&](int stride, const std::string& rest) {
    std::string text = at + rest;
    text.replace(text.find("STRIDE"), 6, std::to_string(stride));
    return count(text);
  };
  Counters c = strided(4, "ld.global.u32 %r2, [%x2];");
  CHECK(c.global_load_bytes == 128);
  CHECK(c.global_load_sectors == 4);
  CHECK(strided(32, "ld.global.u32 %r2, [%x2];").global_load_sectors == 32);
  CHECK(strided(0, "ld.global.u32 %r2, [%x2];").global_load_sectors == 1);
  CHECK(strided(16, "ld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%x2];").global_load_sectors == 16);
  Counters st = strided(8, "st.global.u16 [%x3], %t;");
  CHECK(st.global_store_bytes == 64);
  CHECK(st.global_store_sectors == 8);
  // Backwards: the order of lanes does not matter.
  CHECK(count("sub.u32 %r1, 31, %t; mul.wide.u32 %x1, %r1, 4; add.u64 %x2, %x1, %in; ld.global.u32 "
              "%r2, [%x2];")
            .global_load_sectors == 4);
}

TEST_CASE("Wavefronts and conflicts of shared memory") {
  auto stride = [&](int bytes, const std::string& access) {
    return count("mul.lo.u32 %r1, %t, " + std::to_string(bytes) + "; " + access);
  };
  const std::string word = "st.shared.u32 [%r1], %t;";
  auto check = [](const Counters& c, std::uint64_t wavefronts, std::uint64_t conflicts) {
    CHECK(c.shared_wavefronts == wavefronts);
    CHECK(c.shared_conflicts == conflicts);
  };
  check(stride(4, word), 1, 0);
  check(stride(0, word), 1, 0);      // one word, shared
  check(stride(8, word), 2, 1);      // 16 banks, two words each
  check(stride(128, word), 32, 31);  // one bank
  check(stride(132, word), 1, 0);
  check(stride(2, "st.shared.u16 [%r1], %t;"), 1, 0);
  check(stride(8, "st.shared.v2.u32 [%r1], {%t, %t};"), 2, 0);
  check(stride(16, "st.shared.v4.u32 [%r1], {%t, %t, %t, %t};"), 4, 0);
  check(stride(128, "st.shared.v4.u32 [%r1], {%t, %t, %t, %t};"), 32, 28);
  check(stride(16, "cp.async.cg.shared.global [%r1], [%in], 16;"), 4, 0);
  check(stride(16, "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r2, %r3, %r4, %r5}, [%r1];"), 4, 0);
  check(stride(128, "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r2, %r3, %r4, %r5}, [%r1];"), 32,
        28);
  const Counters load = stride(128, "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r2}, [%r1];");
  check(load, 8, 7);
  CHECK(load.ldmatrix_conflicts == 7);
  const Counters store = stride(128, "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r1], {%r2};");
  check(store, 8, 7);
  CHECK(store.ldmatrix_conflicts == 0);
  const Counters copy = stride(128, "cp.async.cg.shared.global [%r1], [%in], 16;");
  check(copy, 32, 28);
  CHECK(copy.copy_conflicts == 28);
  CHECK(copy.ldmatrix_conflicts == 0);
}

TEST_CASE("Sectors are fetched once a CTA by ld, each time by cp.async") {
  const std::string mine = "mul.wide.u32 %x1, %t, 4; add.u64 %x2, %x1, %in; ";
  const Counters c = count(mine + "ld.global.u32 %r1, [%x2]; ld.global.u32 %r1, [%x2+32];", 64);
  CHECK(c.global_load_sectors == 16);
  CHECK(c.global_fetch_sectors == 9);
  const Counters copied = count(
      "shl.b32 %r1, %t, 4; cp.async.cg.shared.global [%r1], [%in], 16; "
      "cp.async.cg.shared.global [%r1], [%in], 16; ld.global.u32 %r1, [%in];");
  CHECK(copied.global_load_sectors == 3);
  CHECK(copied.global_fetch_sectors == 3);
  RunSetup s;
  s.grid = 3;
  CHECK(run("ld.global.u32 %r1, [%in];", s).report.counters.global_fetch_sectors == 3);
}

TEST_CASE("Barriers, atomics and spills") {
  CHECK(count("bar.sync 0; bar.sync 0;", 64).barriers == 4);
  CHECK(count("atom.global.add.u32 %r1, [%in], 1; red.global.add.u32 [%in], 1;").atomics == 2);
  CHECK(count(".local .align 4 .b8 depot[8]; st.local.u32 [depot], %t; ld.local.u32 %r1, [depot];")
            .spill_bytes == 256);
}

TEST_CASE("Counters add up") {
  Counters a = count("bar.sync 0;"), b = a;
  a += b;
  CHECK(a.instructions == 2 * b.instructions);
  CHECK(a.barriers == 2);
}

}  // namespace
}  // namespace attnloom::sim
