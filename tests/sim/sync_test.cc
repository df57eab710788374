// SPDX-License-Identifier: Apache-2.0
// cp.async and barriers.
#include "sim_test.h"

namespace attnloom::sim {
namespace {

std::vector<std::uint32_t> iota(std::uint32_t n) {
  std::vector<std::uint32_t> v(n);
  for (std::uint32_t k = 0; k < n; ++k) v[k] = k + 1;
  return v;
}

RunSetup setup(unsigned block = 32) {
  RunSetup s;
  s.in = iota(4 * block);
  s.out_words = block;
  s.block = block;
  s.shared_bytes = 16 * block;
  return s;
}

// 16 bytes a thread into shared memory; %r1 is their place.
const std::string kCopy =
    "mul.wide.u32 %x1, %t, 16; add.u64 %x2, %x1, %in; cvt.u32.u64 %r1, %x1; "
    "cp.async.cg.shared.global.L2::128B [%r1], [%x2], 16; cp.async.commit_group; ";
const std::string kOut =
    "mul.wide.u32 %x5, %t, 4; add.u64 %x5, %x5, %out; st.global.u32 [%x5], %d; ";

TEST_CASE("A copy lands at the wait and not before") {
  RunResult good =
      run(kCopy + "cp.async.wait_group 0; ld.shared.u32 %d, [%r1+4]; " + kOut, setup());
  CHECK(good.report.findings.empty());
  for (std::uint32_t t = 0; t < 32; ++t) CHECK(good.out[t] == 4 * t + 2);
  RunResult early =
      run(kCopy + "ld.shared.u32 %d, [%r1+4]; cp.async.wait_group 0; " + kOut, setup());
  CHECK(early.count("in-flight-read") == 32);
  CHECK(early.out[5] == 0xffffffffu);
  RunResult one_left =
      run(kCopy + "cp.async.commit_group; cp.async.wait_group 1; ld.shared.u32 %d, [%r1]; " + kOut,
          setup());
  CHECK(one_left.report.findings.empty());
  RunResult too_lax =
      run(kCopy + "cp.async.wait_group 1; ld.shared.u32 %d, [%r1]; " + kOut, setup());
  CHECK(too_lax.count("in-flight-read") == 32);
}

TEST_CASE("wait_all takes copies that were never committed, wait_group does not") {
  const std::string loose =
      "mul.wide.u32 %x1, %t, 4; add.u64 %x2, %x1, %in; cvt.u32.u64 %r1, %x1; "
      "cp.async.ca.shared.global [%r1], [%x2], 4; ";
  CHECK(run(loose + "cp.async.wait_all; ld.shared.u32 %d, [%r1]; " + kOut, setup()).out[7] == 8);
  CHECK(run(loose + "cp.async.wait_group 0; ld.shared.u32 %d, [%r1]; " + kOut, setup())
            .count("in-flight-read") == 32);
  CHECK(run(loose, setup()).report.findings.empty());
}

TEST_CASE("The source size fills with zeros and bounds the read") {
  RunSetup s = setup();
  RunResult r =
      run("mul.wide.u32 %x1, %t, 16; add.u64 %x2, %x1, %in; cvt.u32.u64 %r1, %x1; and.b32 %r2, %t, "
          "3; shl.b32 %r2, %r2, 2; "
          "cp.async.cg.shared.global [%r1], [%x2], 16, %r2; cp.async.commit_group; "
          "cp.async.wait_group 0; "
          "ld.shared.v4.u32 {%r3, %r4, %r5, %r6}, [%r1]; add.u32 %d, %r3, %r4; add.u32 %d, %d, "
          "%r5; add.u32 %d, %d, %r6; " +
              kOut,
          s);
  CHECK(r.report.findings.empty());
  CHECK(r.out[4] == 0);
  CHECK(r.out[5] == 21);
  CHECK(r.out[6] == 25 + 26);
  CHECK(r.report.counters.global_load_bytes == 8 * (4 + 8 + 12));
  RunResult outside =
      run("mov.u64 %x2, 64; mov.u32 %r2, 0; mul.lo.u32 %r1, %t, 16; cp.async.cg.shared.global "
          "[%r1], [%x2], 16, %r2; "
          "cp.async.wait_all; ld.shared.u32 %d, [%r1]; " +
              kOut,
          s);
  CHECK(outside.report.findings.empty());
  CHECK(outside.out[3] == 0);
  CHECK(run("mov.u32 %r2, 20; mul.lo.u32 %r1, %t, 16; cp.async.cg.shared.global [%r1], [%in], 16, "
            "%r2;",
            s)
            .count("bad-copy-size") == 32);
}

TEST_CASE("Copies over copies and over data that is in use") {
  CHECK(run(kCopy + "st.shared.u32 [%r1+8], %t; cp.async.wait_all;", setup())
            .count("in-flight-write") == 32);
  CHECK(run(kCopy + kCopy + "cp.async.wait_all;", setup()).count("in-flight-write") == 32 * 4);
  CHECK(run("mov.u64 %x2, 64; mul.lo.u32 %r1, %t, 16; cp.async.cg.shared.global [%r1], [%x2], 16;",
            setup())
            .count("out-of-bounds") == 32);
  CHECK(run("cp.async.cg.shared.global [%t], [%in], 16;", setup()).count("misaligned") > 0);
}

TEST_CASE("Other warps see a landed copy after a barrier only") {
  const std::string other = "xor.b32 %r2, %r1, 512; ld.shared.u32 %d, [%r2]; " + kOut;
  RunSetup s = setup(64);
  for (s.options.seed = 0; s.options.seed < 6; ++s.options.seed) {
    CHECK(run(kCopy + "cp.async.wait_group 0; bar.sync 0; " + other, s).report.findings.empty());
    RunResult unordered = run(kCopy + "bar.sync 0; cp.async.wait_group 0; " + other, s);
    CHECK(unordered.count("race-shared") + unordered.count("in-flight-read") >= 32);
    CHECK(run(kCopy + "cp.async.wait_group 0; " + other, s).report.findings.size() >= 1);
  }
}

TEST_CASE("Named barriers: producers arrive, consumers wait") {
  // Warp 0 writes and arrives; warp 1 waits and reads.
  const std::string body = R"(
  setp.lt.u32 %p1, %t, 32;
  and.b32 %r3, %t, 31; shl.b32 %r1, %r3, 2; mov.u32 %d, 0;
  @!%p1 bra CONSUMER;
  st.shared.u32 [%r1], %t;
  bar.arrive 3, 64;
  bra.uni END;
CONSUMER:
  bar.sync 3, 64;
  ld.shared.u32 %d, [%r1];
END:
)" + kOut;
  RunSetup s = setup(64);
  for (s.options.seed = 0; s.options.seed < 8; ++s.options.seed) {
    RunResult r = run(body, s);
    CHECK(r.report.findings.empty());
    CHECK(r.out[40] == 8);
    CHECK(r.report.counters.barriers == 2);
  }
}

TEST_CASE("bar.red") {
  RunSetup s = setup(64);
  RunResult r =
      run("setp.lt.u32 %p1, %t, 40; bar.red.popc.u32 %r1, 0, %p1; bar.red.or.pred %p2, 0, %p1; "
          "bar.red.and.pred %p3, 0, %p1; "
          "selp.u32 %r2, 100, 0, %p2; selp.u32 %r3, 1000, 0, %p3; add.u32 %d, %r1, %r2; add.u32 "
          "%d, %d, %r3; " +
              kOut,
          s);
  CHECK(r.report.findings.empty());
  CHECK(r.out[63] == 140);
}

TEST_CASE("A deadlock says what every warp waits for") {
  RunSetup s = setup(96);
  RunResult r =
      run("setp.lt.u32 %p1, %t, 32; @%p1 bra SECOND; bar.sync 1, 96; SECOND: bar.sync 2, 96;", s);
  const Finding* f = r.find("deadlock");
  REQUIRE(f != nullptr);
  CHECK(f->detail.find("warp 0 at barrier 2") != std::string::npos);
  CHECK(f->detail.find("warp 1 at barrier 1") != std::string::npos);
  CHECK(f->detail.find("2 of 3 warps") != std::string::npos);
}

TEST_CASE("Barriers that are not reached by whole warps or not by the right number") {
  RunSetup s = setup(64);
  CHECK(run("and.b32 %r1, %t, 1; setp.eq.u32 %p1, %r1, 0; @%p1 bar.sync 0;", s)
            .count("divergent-barrier") == 2);
  CHECK(run("bar.sync 0, 40;", s).count("barrier-count") >= 1);
  CHECK(run("setp.lt.u32 %p1, %t, 32; @%p1 bra A; bar.sync 1, 64; bra.uni END; A: bar.sync 1, 32; "
            "END:",
            s)
                .count("barrier-count") +
            run("setp.lt.u32 %p1, %t, 32; @%p1 bra A; bar.sync 1, 64; bra.uni END; A: bar.sync 1, "
                "32; END:",
                s)
                .count("deadlock") >=
        1);
}

TEST_CASE("Warps that left do not count") {
  RunSetup s = setup(96);
  RunResult r = run("setp.ge.u32 %p1, %t, 64; @%p1 ret; mov.u32 %d, 1; bar.sync 0; " + kOut, s);
  CHECK(r.report.findings.empty());
  CHECK(r.out[63] == 1);
}

TEST_CASE("A warp that polls lets the other one go on") {
  RunSetup s = setup(64);
  const std::string body = R"(
  setp.ne.u32 %p1, %t, 0;
  @%p1 bra OTHERS;
  st.shared.u32 [0], 0;
OTHERS:
  bar.sync 0;
  setp.lt.u32 %p2, %t, 32;
  @%p2 bra POLL;
  setp.eq.u32 %p3, %t, 32;
  @%p3 st.release.cta.shared.u32 [0], 1;
  ret;
POLL:
  ld.acquire.cta.shared.u32 %r1, [0];
  setp.eq.u32 %p4, %r1, 0;
  @%p4 bra POLL;
)";
  for (s.options.seed = 0; s.options.seed < 4; ++s.options.seed)
    CHECK(run(body, s).report.findings.empty());
}

TEST_CASE("Copies of 4, 8 and 16 bytes through L1") {
  for (int bytes : {4, 8, 16}) {
    const std::string n = std::to_string(bytes);
    RunResult r = run("mul.wide.u32 %x1, %t, " + n +
                          "; add.u64 %x2, %x1, %in; cvt.u32.u64 %r1, %x1; "
                          "cp.async.ca.shared.global [%r1], [%x2], " +
                          n + "; cp.async.wait_all; ld.shared.u32 %d, [%r1]; " + kOut,
                      setup());
    CHECK(r.report.findings.empty());
    for (std::uint32_t t = 0; t < 32; ++t)
      CHECK(r.out[t] == t * static_cast<std::uint32_t>(bytes) / 4 + 1);
  }
}

TEST_CASE("CTAs of 8 and 32 warps: barriers, ballots and races name every warp") {
  const std::string body = R"(
  shl.b32 %r1, %t, 2; st.shared.u32 [%r1], %t;
  BARRIER
  mov.u32 %r2, %ntid.x; sub.u32 %r2, %r2, 1; sub.u32 %r2, %r2, %t; shl.b32 %r2, %r2, 2;
  ld.shared.u32 %d, [%r2];
)" + kOut;
  auto with = [&](const std::string& barrier) {
    std::string text = body;
    return text.replace(text.find("BARRIER"), 7, barrier);
  };
  for (unsigned block : {256u, 1024u}) {
    RunSetup s = setup(block);
    s.out_words = block;
    s.shared_bytes = 4 * block;
    RunResult r = run(with("bar.sync 0;"), s);
    CHECK(r.report.findings.empty());
    for (std::uint32_t t = 0; t < block; ++t) CHECK(r.out[t] == block - 1 - t);
    CHECK(r.report.counters.barriers == block / 32);
    CHECK(run(with(""), s).count("race-shared") > 0);
    // Half of the warps at each of two named barriers: warps of other halves stay unordered.
    RunResult halves =
        run(with("setp.lt.u32 %p1, %t, " + std::to_string(block / 2) +
                 "; @%p1 bra LOW; bar.sync 2, " + std::to_string(block / 2) +
                 "; bra.uni JOIN; LOW: bar.sync 1, " + std::to_string(block / 2) + "; JOIN:"),
            s);
    CHECK(halves.count("race-shared") > 0);
    CHECK(halves.count("deadlock") == 0);
  }
}

}  // namespace
}  // namespace attnloom::sim
