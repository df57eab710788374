// SPDX-License-Identifier: Apache-2.0
// mbarrier, setmaxnreg and what stands beside them.
#include "hopper_kernel.h"

namespace attnloom::sim {
namespace {

HopperSetup warps(unsigned count) {
  HopperSetup s;
  s.block = 32 * count;
  s.out_words = s.block;
  return s;
}

const std::string kIsWarp1 = "setp.eq.u32 %p1, %w, 1; shl.b32 %r1, %lane, 2; ";

TEST_CASE("An arrival releases, a successful wait acquires") {
  auto kernel = [](const std::string& wait) {
    return init_barrier(512, 32) + kInitDone + kIsWarp1 +
           "@%p1 bra CONSUMER; add.u32 %r2, %t, 7; st.shared.u32 [%r1], %r2; "
           "mbarrier.arrive.shared::cta.b64 _, [512]; bra END; CONSUMER: " +
           wait + "ld.shared.u32 %d, [%r1]; END: " + kStoreD;
  };
  CHECK(first_finding(kernel(wait_barrier(512, "0")), warps(2)) == "");
  RunResult r = run_hopper(kernel(wait_barrier(512, "0")), warps(2));
  for (std::uint32_t t = 0; t < 32; ++t) CHECK(r.out[32 + t] == t + 7);
  // The phase of the other parity counts as over, and says nothing.
  CHECK(fewest(kernel(wait_barrier(512, "1")), warps(2)) >= 1);
  CHECK(fewest(kernel(""), warps(2)) >= 1);
  const std::string no_sync = init_barrier(512, 32) + "mbarrier.arrive.shared::cta.b64 _, [512]; ";
  CHECK(fewest(no_sync, warps(2)) >= 1);
}

// One slot, 6 rounds: warp 0 fills it when it is empty, warp 1 adds it up when it is full.
std::string ring(const std::string& full_parity, const std::string& release) {
  return init_barrier(512, 32) + init_barrier(520, 32) + kInitDone + kIsWarp1 +
         "mov.u32 %r5, 0; @%p1 bra CONSUMER; "
         "PRODUCE: and.b32 %r6, %r5, 1; xor.b32 %r6, %r6, 1; " +
         wait_barrier(520, "%r6") +
         "mad.lo.u32 %r7, %r5, 100, %lane; st.shared.u32 [%r1], %r7; "
         "mbarrier.arrive.shared::cta.b64 _, [512]; add.u32 %r5, %r5, 1; "
         "setp.lt.u32 %p2, %r5, 6; @%p2 bra PRODUCE; bra END; "
         "CONSUMER: and.b32 %r6, %r5, 1; " +
         wait_barrier(512, full_parity) + "ld.shared.u32 %r7, [%r1]; add.u32 %d, %d, %r7; " +
         release +
         "add.u32 %r5, %r5, 1; setp.lt.u32 %p2, %r5, 6; @%p2 bra CONSUMER; END: " + kStoreD;
}

TEST_CASE("Phases follow each other") {
  const std::string release = "mbarrier.arrive.shared::cta.b64 _, [520]; ";
  CHECK(first_finding(ring("%r6", release), warps(2)) == "");
  RunResult r = run_hopper(ring("%r6", release), warps(2));
  for (std::uint32_t t = 0; t < 32; ++t) CHECK(r.out[32 + t] == 1500 + 6 * t);
  for (HopperSetup s = warps(2); s.options.seed < 20; ++s.options.seed) {
    CHECK(!run_hopper(ring("0", release), s).report.findings.empty());
    RunResult hang = run_hopper(ring("%r6", ""), s);
    REQUIRE(hang.find("deadlock") != nullptr);
    const std::string& detail = hang.find("deadlock")->detail;
    INFO(detail);
    CHECK(detail.find("waits for parity 0 of the mbarrier at shared+520, which is in phase 0 with "
                      "32 of 32 arrivals and 0 bytes to come") != std::string::npos);
    CHECK(detail.find("waits for parity 1 of the mbarrier at shared+512, which is in phase 1 with "
                      "32 of 32 arrivals") != std::string::npos);
  }
}

TEST_CASE("Bytes that were announced and never come are a hang") {
  RunResult r = run_hopper(init_barrier(512, 1) + kInitDone +
                               "@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [512], 48; " +
                               wait_barrier(512, "0"),
                           warps(1));
  REQUIRE(r.find("deadlock") != nullptr);
  CHECK(r.find("deadlock")->detail.find("phase 0 with 0 of 1 arrivals and 48 bytes to come") !=
        std::string::npos);
}

TEST_CASE("Too many arrivals, no barrier, two beginnings") {
  const std::string full = init_barrier(512, 1) + kInitDone +
                           "@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [512], 16; ";
  CHECK(run_hopper(full + "@%p0 mbarrier.arrive.shared::cta.b64 _, [512]; ", warps(1))
            .count("mbarrier-overflow") == 1);
  CHECK(run_hopper(
            init_barrier(512, 2) + kInitDone + "@%p0 mbarrier.arrive.shared::cta.b64 _, [512], 3; ",
            warps(1))
            .count("mbarrier-overflow") == 1);
  CHECK(
      run_hopper("mbarrier.arrive.shared::cta.b64 _, [512]; ", warps(1)).count("mbarrier-state") ==
      32);
  CHECK(run_hopper(init_barrier(512, 1) + init_barrier(512, 1), warps(1)).count("mbarrier-state") ==
        1);
  CHECK(run_hopper(init_barrier(512, 0), warps(1)).count("mbarrier-state") == 1);
  CHECK(run_hopper(init_barrier(516, 1), warps(1)).count("misaligned") == 1);
  CHECK(run_hopper(init_barrier(512, 1) + "@%p0 mbarrier.inval.shared::cta.b64 [512]; " +
                       init_barrier(512, 1),
                   warps(1))
            .report.findings.empty());
}

TEST_CASE("A state names the phase that an arrival belongs to") {
  RunResult r = run_hopper(
      init_barrier(512, 64) + kInitDone +
          "mbarrier.arrive.release.cta.shared::cta.b64 %x1, [512]; "
          "AGAIN: mbarrier.test_wait.acquire.cta.shared::cta.b64 %p1, [512], %x1; @!%p1 bra AGAIN; "
          "cvt.u32.u64 %d, %x1; " +
          kStoreD,
      warps(2));
  CHECK(r.report.findings.empty());
  CHECK(r.out[40] == 0);
}

TEST_CASE("Lanes that poll let another lane of their warp do what they wait for") {
  const std::string body =
      init_barrier(512, 1) + kInitDone + "setp.eq.u32 %p1, %lane, 5; @%p1 bra LATE; " +
      wait_barrier(512, "0") +
      "bra END; LATE: mbarrier.arrive.shared::cta.b64 _, [512]; END: " + "mov.u32 %d, 3; " +
      kStoreD;
  CHECK(first_finding(body, warps(1)) == "");
  CHECK(run_hopper(body, warps(1)).out[9] == 3);
}

TEST_CASE("Copies of a warp arrive when they have landed") {
  HopperSetup s = warps(2);
  for (std::uint32_t k = 0; k < 128; ++k) s.in.push_back(3 * k);
  auto kernel = [&](int count, const std::string& arrive, const std::string& wait) {
    return init_barrier(512, count) + kInitDone +
           "setp.eq.u32 %p1, %w, 1; shl.b32 %r1, %lane, 4; @%p1 bra CONSUMER; "
           "cvt.u64.u32 %x1, %r1; add.u64 %x1, %x1, %in; "
           "cp.async.cg.shared.global [%r1], [%x1], 16; " +
           arrive + "bra END; CONSUMER: " + wait + "ld.shared.u32 %d, [%r1+4]; END: " + kStoreD;
  };
  const std::string noinc = "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [512]; ",
                    plain =
                        "cp.async.mbarrier.arrive.shared.b64 [512]; "
                        "mbarrier.arrive.shared::cta.b64 _, [512]; ",
                    wait = wait_barrier(512, "0");
  CHECK(first_finding(kernel(32, noinc, wait), s) == "");
  CHECK(first_finding(kernel(32, plain, wait), s) == "");
  CHECK(run_hopper(kernel(32, noinc, wait), s).out[32 + 9] == 3 * (4 * 9 + 1));
  CHECK(run_hopper(kernel(32, plain, wait), s).out[32 + 9] == 3 * (4 * 9 + 1));
  CHECK(fewest(kernel(32, noinc, ""), s) >= 1);
  // An arrival of the thread itself says nothing of its copies.
  CHECK(fewest(kernel(32, "mbarrier.arrive.shared::cta.b64 _, [512]; ", wait), s) >= 1);
}

TEST_CASE("setmaxnreg trades what the launch was given") {
  auto roles = [](int producer, int consumer) {
    return "setp.lt.u32 %p1, %w, 4; @%p1 bra PRODUCER; setmaxnreg.inc.sync.aligned.u32 " +
           std::to_string(consumer) + "; bra END; PRODUCER: setmaxnreg.dec.sync.aligned.u32 " +
           std::to_string(producer) + "; END: ";
  };
  HopperSetup s = warps(12);
  s.bounds = ".maxntid 384, 1, 1\n.minnctapersm 1";
  CHECK(first_finding(roles(24, 240), s) == "");
  RunResult over = run_hopper(roles(32, 240), s);
  REQUIRE(over.find("deadlock") != nullptr);
  CHECK(over.find("deadlock")->detail.find("waits for 240 registers a thread") !=
        std::string::npos);
  CHECK(run_hopper(roles(24, 160), s).count("register-budget") == 8);  // 168 is what they have
  s.bounds = "";
  CHECK(run_hopper(roles(24, 240), s).count("register-budget") == 12);
}

TEST_CASE("One lane is elected; launches are complete before the next begins") {
  RunResult r = run_hopper(
      "griddepcontrol.wait; elect.sync %r1|%p1, 0xffffffff; @%p1 mov.u32 %d, 9; "
      "griddepcontrol.launch_dependents; " +
          kStoreD,
      warps(2));
  CHECK(r.report.findings.empty());
  CHECK(std::count(r.out.begin(), r.out.end(), 9u) == 2);
}

}  // namespace
}  // namespace attnloom::sim
