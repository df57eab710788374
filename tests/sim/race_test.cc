// SPDX-License-Identifier: Apache-2.0
// Happens-before: each kind of race is found under every order, ordered accesses never.
#include "sim_test.h"

namespace attnloom::sim {
namespace {

constexpr std::uint64_t kSeeds = 20;

std::uint64_t least(const std::string& body, RunSetup s, std::string_view kind) {
  std::uint64_t fewest = ~std::uint64_t{0};
  for (s.options.seed = 0; s.options.seed < kSeeds; ++s.options.seed)
    fewest = std::min(fewest, run(body, s).count(kind));
  return fewest;
}

bool clean(const std::string& body, RunSetup s) {
  for (s.options.seed = 0; s.options.seed < kSeeds; ++s.options.seed) {
    RunResult r = run(body, s);
    for (const Finding& f : r.report.findings)
      UNSCOPED_INFO("seed " << s.options.seed << ": " << f.kind << " " << f.detail);
    if (!r.report.findings.empty()) return false;
  }
  return true;
}

RunSetup two_warps() {
  RunSetup s;
  s.block = 64;
  s.out_words = 64;
  s.out_written = true;
  s.shared_bytes = 512;
  return s;
}

RunSetup two_ctas() {
  RunSetup s;
  s.grid = 2;
  s.out_written = true;
  s.in = std::vector<std::uint32_t>(32, 0);
  return s;
}

const std::string kWarp1 = "setp.ge.u32 %p1, %t, 32; and.b32 %r1, %t, 31; shl.b32 %r1, %r1, 2; ";
// %p1: thread 0 of CTA 1, %p2: thread 0 of CTA 0.
const std::string kCta =
    "mov.u32 %r9, %ctaid.x; setp.eq.u32 %p3, %t, 0; setp.eq.and.u32 %p1|%p4, %r9, 1, %p3; "
    "setp.eq.and.u32 %p2, %r9, 0, %p3; ";

TEST_CASE("Shared memory: read after write, write after read, write after write") {
  CHECK(least(kWarp1 + "@!%p1 st.shared.u32 [%r1], %t; @%p1 ld.shared.u32 %r2, [%r1];", two_warps(),
              "race-shared") >= 1);
  CHECK(least("shl.b32 %r1, %t, 2; st.shared.u32 [%r1], %t; bar.sync 0; " + kWarp1 +
                  "@!%p1 ld.shared.u32 %r2, [%r1]; @%p1 st.shared.u32 [%r1], %t;",
              two_warps(), "race-shared") >= 1);
  CHECK(least(kWarp1 + "st.shared.u32 [%r1], %t;", two_warps(), "race-shared") >= 1);
  CHECK(clean(kWarp1 + "@!%p1 st.shared.u32 [%r1], %t; bar.sync 0; @%p1 ld.shared.u32 %r2, [%r1]; "
                       "bar.sync 0; @%p1 st.shared.u32 [%r1], %t;",
              two_warps()));
}

TEST_CASE("Shared memory: bytes of one word that different warps own") {
  RunSetup s = two_warps();
  CHECK(
      clean("shl.b32 %r1, %t, 1; st.shared.u16 [%r1+30], %t; ld.shared.u16 %h1, [%r1+30]; "
            "st.shared.u16 [%r1+30], %t;",
            s));
  CHECK(least("and.b32 %r1, %t, 31; shl.b32 %r1, %r1, 1; st.shared.u16 [%r1], %t;", s,
              "race-shared") >= 1);
  CHECK(
      least(kWarp1 +
                "shr.u32 %r2, %r1, 1; @!%p1 st.shared.u16 [%r2], %t; @%p1 ld.shared.u32 %r3, [0];",
            s, "race-shared") >= 1);
}

TEST_CASE("Shared memory: 16-byte accesses keep the words apart") {
  RunSetup s = two_warps();
  s.shared_bytes = 1024;
  CHECK(
      clean("shl.b32 %r1, %t, 4; st.shared.v4.u32 [%r1], {%t, %t, %t, %t}; ld.shared.v4.u32 {%r2, "
            "%r3, %r4, %r5}, [%r1]; bar.sync 0; "
            "xor.b32 %r1, %r1, 512; ld.shared.u32 %r2, [%r1+4]; st.shared.u32 [%r1+8], %t;",
            s));
  CHECK(least("shl.b32 %r1, %t, 4; st.shared.v4.u32 [%r1], {%t, %t, %t, %t}; bar.sync 0; "
              "ld.shared.v4.u32 {%r2, %r3, %r4, %r5}, [%r1]; "
              "xor.b32 %r1, %r1, 512; st.shared.u32 [%r1+8], %t;",
              s, "race-shared") >= 1);
}

TEST_CASE("Shared atomics do not race with each other, but with plain accesses") {
  RunSetup s = two_warps();
  const std::string zero = "setp.eq.u32 %p2, %t, 0; @%p2 st.shared.u32 [0], 0; bar.sync 0; ";
  CHECK(clean(zero + "atom.shared.add.u32 %r2, [0], 1; bar.sync 0; ld.shared.u32 %r3, [0];", s));
  CHECK(least(zero + "atom.shared.add.u32 %r2, [0], 1; ld.shared.u32 %r3, [0];", s,
              "race-shared") >= 1);
}

TEST_CASE("Global memory between CTAs: nothing but atomics and fences orders them") {
  RunSetup s = two_ctas();
  CHECK(least(kCta + "@%p1 st.global.u32 [%out], 1; @%p2 ld.global.u32 %r1, [%out];", s,
              "race-global") >= 1);
  CHECK(least(kCta + "@%p3 st.global.u32 [%out], 1;", s, "race-global") >= 1);
  CHECK(clean(kCta + "@%p1 st.global.u32 [%out], 1; @%p2 st.global.u32 [%out+4], 1; @%p2 "
                     "ld.global.u32 %r1, [%out+8];",
              s));
  CHECK(clean(kCta + "@%p1 st.global.u16 [%out], %t; @%p2 st.global.u16 [%out+2], %t; @%p2 "
                     "ld.global.u16 %h1, [%out+2];",
              s));
  CHECK(least(kCta + "@%p1 st.global.u16 [%out], %t; @%p2 st.global.u16 [%out+2], %t; @%p2 "
                     "ld.global.u32 %r1, [%out];",
              s, "race-global") >= 1);
  CHECK(clean(kCta + "ld.global.u32 %r1, [%in];", s));
}

// CTA 1 publishes data at out+0 through the flag at out+64; CTA 0 reads the data if it sees the
// flag. The order of CTAs is random, so of the faulty ones only those runs can tell that ran CTA 1
// first.
std::uint64_t flagged(const std::string& publish, const std::string& observe, bool want_clean) {
  RunSetup s = two_ctas();
  std::uint64_t found = 0, seen = 0;
  for (s.options.seed = 0; s.options.seed < kSeeds; ++s.options.seed) {
    RunResult r = run(kCta + "mov.u32 %r1, 0; @%p1 st.global.u32 [%out], 5; " + publish + observe +
                          "setp.ne.and.u32 %p5, %r1, 0, %p2; @%p5 ld.global.u32 %r2, [%out]; @%p5 "
                          "st.global.u32 [%out+4], %r2;",
                      s);
    seen += r.out[1] == 5;
    found += r.count("race-global") != 0;
    CHECK((want_clean || r.count("race-global") != 0 || r.out[1] == 0));
  }
  CHECK(seen > 0);
  return want_clean ? found : found == 0;
}

TEST_CASE("Release and acquire patterns order, half of one does not") {
  CHECK(flagged("@%p1 st.release.gpu.global.u32 [%out+64], 1; ",
                "@%p2 ld.acquire.gpu.global.u32 %r1, [%out+64]; ", true) == 0);
  CHECK(flagged("@%p1 membar.gl; @%p1 st.volatile.global.u32 [%out+64], 1; ",
                "@%p2 ld.volatile.global.u32 %r1, [%out+64]; @%p2 membar.gl; ", true) == 0);
  CHECK(flagged("@%p1 fence.acq_rel.gpu; @%p1 red.relaxed.gpu.global.add.u32 [%out+64], 1; ",
                "@%p2 atom.acquire.gpu.global.add.u32 %r1, [%out+64], 0; ", true) == 0);
  CHECK(flagged("@%p1 st.relaxed.gpu.global.u32 [%out+64], 1; ",
                "@%p2 ld.acquire.gpu.global.u32 %r1, [%out+64]; ", false) == 0);
  CHECK(flagged("@%p1 st.release.gpu.global.u32 [%out+64], 1; ",
                "@%p2 ld.relaxed.gpu.global.u32 %r1, [%out+64]; ", false) == 0);
  CHECK(flagged("@%p1 st.release.cta.global.u32 [%out+64], 1; ",
                "@%p2 ld.acquire.gpu.global.u32 %r1, [%out+64]; ", false) == 0);
  CHECK(flagged("@%p1 membar.cta; @%p1 st.volatile.global.u32 [%out+64], 1; ",
                "@%p2 ld.volatile.global.u32 %r1, [%out+64]; @%p2 membar.gl; ", false) == 0);
}

TEST_CASE(
    "A store of somebody else over a flag hides its release; one of the same thread does not") {
  RunSetup s = two_ctas();
  CHECK(least(kCta +
                  "@%p1 st.global.u32 [%out], 5; @%p1 st.release.gpu.global.u32 [%out+64], 1; "
                  "@%p2 st.relaxed.gpu.global.u32 [%out+64], 1; "
                  "@%p2 ld.acquire.gpu.global.u32 %r1, [%out+64]; @%p2 ld.global.u32 %r2, [%out];",
              s, "race-global") >= 1);
  CHECK(flagged("@%p1 st.release.gpu.global.u32 [%out+64], 1; "
                "@%p1 st.relaxed.gpu.global.u32 [%out+64], 2; ",
                "@%p2 ld.acquire.gpu.global.u32 %r1, [%out+64]; ", true) == 0);
}

TEST_CASE("What follows a release is not released") {
  RunSetup s = two_ctas();
  bool found = false;
  for (s.options.seed = 0; s.options.seed < kSeeds; ++s.options.seed) {
    RunResult r =
        run(kCta +
                "@%p1 st.release.gpu.global.u32 [%out+64], 1; @%p1 st.global.u32 [%out], 5; "
                "@%p2 ld.acquire.gpu.global.u32 %r1, [%out+64]; @%p2 ld.global.u32 %r2, [%out];",
            s);
    CHECK(r.count("race-global") == 1);
    found = true;
  }
  CHECK(found);
}

TEST_CASE("The same seed gives the same report; every seed the same kinds") {
  RunSetup s = two_warps();
  const std::string body =
      kWarp1 +
      "@!%p1 st.shared.u32 [%r1], %t; @%p1 ld.shared.u32 %r2, [%r1]; st.global.u32 [%out], %r1;";
  auto text = [&](std::uint64_t seed) {
    s.options.seed = seed;
    std::string all;
    for (const Finding& f : run(body, s).report.findings)
      all += f.kind + f.place + f.detail + std::to_string(f.count) + "\n";
    return all;
  };
  CHECK(text(7) == text(7));
  CHECK(text(1).find("race-shared") != std::string::npos);
  CHECK(text(2).find("race-global") != std::string::npos);
}

TEST_CASE("Without checks the values are the same and nothing is reported") {
  RunSetup s = two_warps();
  s.options.checks = false;
  CHECK(run(kWarp1 + "st.shared.u32 [%r1], %t;", s).report.findings.empty());
}

TEST_CASE("Lanes of one instruction that store different values to one place") {
  RunSetup s;
  s.shared_bytes = 128;
  auto races = [&](const std::string& body) {
    return run("shr.u32 %r1, %t, 1; shl.b32 %r1, %r1, 2; mov.u32 %r2, 7; " + body, s)
        .count("race-lanes");
  };
  CHECK(races("st.shared.u32 [%r1], %t;") == 1);
  CHECK(races("st.shared.u32 [%r1], %r2;") == 0);
  CHECK(races("and.b32 %r3, %t, 1; setp.eq.u32 %p1, %r3, 0; @%p1 st.shared.u32 [%r1], %t;") == 0);
  CHECK(races("st.volatile.shared.u32 [%r1], %t;") == 0);
  // Halves of one word are two places.
  CHECK(races("cvt.u16.u32 %h1, %t; shl.b32 %r1, %t, 1; st.shared.u16 [%r1], %h1;") == 0);
  CHECK(races("mul.wide.u32 %x1, %r1, 1; add.u64 %x1, %x1, %out; st.global.u32 [%x1], %t;") == 1);
  CHECK(races("mul.wide.u32 %x1, %r1, 1; add.u64 %x1, %x1, %out; st.global.u32 [%x1], %r2;") == 0);
}

TEST_CASE("A lane reads what another lane of its warp wrote only after they met") {
  RunSetup s;
  s.shared_bytes = 512;
  s.in.assign(128, 5);
  // Every lane writes 16 bytes; it reads its own, or those of its neighbour.
  auto races = [&](const std::string& write, const std::string& between, const std::string& read) {
    RunResult r =
        run("shl.b32 %r1, %t, 4; xor.b32 %r2, %r1, 16; cvt.u64.u32 %x1, %r1; "
            "add.u64 %x1, %x1, %in; " +
                write + between + read,
            s);
    CHECK(r.report.findings.size() == (r.count("race-lanes") != 0 ? 1 : 0));
    return r.count("race-lanes");
  };
  const std::string stores[] = {
      "st.shared.v4.u32 [%r1], {%t, %t, %t, %t}; ",
      "st.shared.v2.u32 [%r1], {%t, %t}; st.shared.u32 [%r1+8], %t; st.shared.u32 [%r1+12], %t; ",
      "cp.async.cg.shared.global [%r1], [%x1], 16; cp.async.wait_all; "};
  for (const std::string& store : stores) {
    for (const std::string& read :
         {std::string("ld.shared.v4.u32 {%r4, %r5, %r6, %r7}, [%r2];"),
          std::string("ld.shared.v2.u32 {%r4, %r5}, [%r2];"),
          std::string("ld.shared.u32 %r4, [%r2+8];"), std::string("ld.shared.u16 %h1, [%r2+4];")}) {
      CHECK(races(store, "", read) > 0);
      CHECK(races(store, "shfl.sync.idx.b32 %r9, %t, 0, 31, -1; ", read) > 0);
      CHECK(races(store, "bar.warp.sync -1; ", read) == 0);
      CHECK(races(store, "bar.sync 0; ", read) == 0);
    }
    CHECK(races(store, "", "ld.shared.v4.u32 {%r4, %r5, %r6, %r7}, [%r1];") == 0);
  }
}

}  // namespace
}  // namespace attnloom::sim
