// SPDX-License-Identifier: Apache-2.0
// Divergence, and exchange between lanes.
#include "sim_test.h"

namespace attnloom::sim {
namespace {

const std::string kStore =
    "mul.wide.u32 %x1, %t, 4; add.u64 %x1, %x1, %out; st.global.u32 [%x1], %d;";

std::vector<std::uint32_t> values(const std::string& body, std::uint32_t n = 0) {
  RunSetup s;
  s.n = n;
  RunResult r = run(body + kStore, s);
  for (const Finding& f : r.report.findings) UNSCOPED_INFO(f.kind << " " << f.detail);
  CHECK(r.report.findings.empty());
  return r.out;
}

TEST_CASE("Lanes with different trip counts, continue and early exit join again") {
  // for (i = 0; i < t % 7; ++i) { if ((t + i) % 3 == 0) continue; d += i * t; }  lane 31 leaves
  // before the loop.
  const std::string body = R"(
  mov.u32 %d, 1000;
  setp.eq.u32 %p1, %t, 31;
  @%p1 bra END;
  mov.u32 %d, 0;
  rem.u32 %r1, %t, 7;
  mov.u32 %r2, 0;
LOOP:
  setp.ge.u32 %p2, %r2, %r1;
  @%p2 bra END;
  add.u32 %r3, %t, %r2;
  rem.u32 %r3, %r3, 3;
  setp.eq.u32 %p3, %r3, 0;
  @%p3 bra NEXT;
  mad.lo.u32 %d, %r2, %t, %d;
NEXT:
  add.u32 %r2, %r2, 1;
  bra.uni LOOP;
END:
  activemask.b32 %r9;
  setp.ne.u32 %p4, %r9, 0xffffffff;
  @%p4 mov.u32 %d, 0xdead;
)";
  auto out = values(body);
  for (std::uint32_t t = 0; t < 32; ++t) {
    std::uint32_t want = t == 31 ? 1000 : 0;
    for (std::uint32_t i = 0; i < t % 7 && t != 31; ++i) want += (t + i) % 3 == 0 ? 0 : i * t;
    CHECK(out[t] == want);
  }
}

TEST_CASE("A value lives on around a loop that is entered in its middle") {
  // The first mention of %r5 in the text is a use; its definition comes later and reaches it along
  // the back edge.
  auto out = values(R"(
  mov.u32 %d, 0;
  mov.u32 %r1, 0;
  bra.uni MIDDLE;
TOP:
  mul.lo.u32 %r8, %r1, 1000;
  add.u32 %d, %d, %r5;
  setp.ge.u32 %p1, %r1, 3;
  @%p1 bra END;
MIDDLE:
  add.u32 %r5, %r1, 10;
  mul.lo.u32 %r6, %r1, 100;
  add.u32 %r7, %r6, 1;
  add.u32 %r1, %r1, 1;
  bra.uni TOP;
END:
)");
  CHECK(out[0] == 10 + 11 + 12);
}

TEST_CASE("A guarded write in a loop keeps the value of the other lanes") {
  auto out = values(R"(
  mov.u32 %r1, 5;
  mov.u32 %r2, 0;
  mov.u32 %d, 0;
LOOP:
  setp.eq.u32 %p1, %t, %r2;
  @%p1 mov.u32 %r1, 50;
  add.u32 %d, %d, %r1;
  mul.lo.u32 %r3, %r2, 7777;
  add.u32 %r4, %r3, 1;
  xor.b32 %r5, %r4, %r3;
  and.b32 %r6, %r5, 0;
  add.u32 %d, %d, %r6;
  add.u32 %r2, %r2, 1;
  setp.lt.u32 %p2, %r2, 4;
  @%p2 bra LOOP;
)");
  for (std::uint32_t t = 0; t < 32; ++t) CHECK(out[t] == (t < 4 ? 5 * t + 50 * (4 - t) : 20));
}

TEST_CASE("A table of targets") {
  auto out = values(R"(
  rem.u32 %r1, %t, 5;
  TABLE: .branchtargets A, B, C;
  brx.idx %r1, TABLE;
A: mov.u32 %d, 10; bra.uni END;
B: mov.u32 %d, 20; bra.uni END;
C: mov.u32 %d, 30;
END:
)");
  for (std::uint32_t t = 0; t < 32; ++t)
    CHECK(out[t] == (t % 5 == 0 ? 10u : t % 5 == 1 ? 20u : 30u));
}

TEST_CASE("shfl in its four modes, with segments and the range predicate") {
  auto bfly = values("shfl.sync.bfly.b32 %d, %t, 5, 31, -1;");
  auto up = values("shfl.sync.up.b32 %d|%p1, %t, 3, 0, -1; @!%p1 add.u32 %d, %d, 100;");
  auto down = values("shfl.sync.down.b32 %d|%p1, %t, 2, 31, -1; @!%p1 add.u32 %d, %d, 100;");
  auto idx = values("shfl.sync.idx.b32 %d, %t, 1, 0x181f, -1;");  // segments of 8 lanes
  for (std::uint32_t t = 0; t < 32; ++t) {
    CHECK(bfly[t] == (t ^ 5));
    CHECK(up[t] == (t < 3 ? t + 100 : t - 3));
    CHECK(down[t] == (t + 2 > 31 ? t + 100 : t + 2));
    CHECK(idx[t] == (t & 24) + 1);
  }
}

TEST_CASE("Votes, matches and reductions") {
  const std::string even = "and.b32 %r1, %t, 1; setp.eq.u32 %p1, %r1, 0; ";
  CHECK(values(even + "vote.sync.ballot.b32 %d, %p1, -1;")[3] == 0x55555555u);
  CHECK(values(even + "vote.sync.all.pred %p2, %p1, -1; selp.u32 %d, 1, 0, %p2;")[0] == 0u);
  CHECK(values(even + "vote.sync.any.pred %p2, %p1, -1; selp.u32 %d, 1, 0, %p2;")[0] == 1u);
  CHECK(values(even + "vote.sync.uni.pred %p2, %p1, -1; selp.u32 %d, 1, 0, %p2;")[0] == 0u);
  CHECK(values("redux.sync.add.s32 %d, %t, -1;")[9] == 31u * 32 / 2);
  CHECK(values("sub.s32 %r1, %t, 5; redux.sync.min.s32 %d, %r1, -1;")[0] == std::uint32_t(-5));
  CHECK(values("redux.sync.max.u32 %d, %t, -1;")[0] == 31u);
  CHECK(values("shr.u32 %r1, %t, 4; match.any.sync.b32 %d, %r1, -1;")[20] == 0xffff0000u);
  CHECK(values("match.all.sync.b32 %d|%p1, %n, -1; @!%p1 mov.u32 %d, 5;", 7)[20] == 0xffffffffu);
  CHECK(values("elect.sync %r1|%p1, -1; selp.u32 %d, 1, 0, %p1;")[0] == 1u);
}

TEST_CASE("An exchange with a lane that is not there is found") {
  RunResult r =
      run("setp.lt.u32 %p1, %t, 16; @!%p1 bra END; shfl.sync.bfly.b32 %d, %t, 1, 31, -1; END: " +
              kStore,
          {});
  CHECK(r.count("inactive-lanes") == 1);
  RunSetup few;
  few.block = 24;
  CHECK(run("vote.sync.ballot.b32 %d, %p1, -1; " + kStore, few).count("inactive-lanes") == 1);
  CHECK(run("bar.warp.sync -1; mov.u32 %d, 0;" + kStore, {}).report.findings.empty());
}

TEST_CASE("Functions are expanded, with parameters, results and guards") {
  const std::string module = R"(
.func (.param .b32 result) twice(.param .b32 x)
{
  .reg .b32 %r<4>;
  .reg .pred %p<2>;
  ld.param.u32 %r1, [x];
  setp.gt.u32 %p1, %r1, 20;
  @%p1 bra BIG;
  add.u32 %r2, %r1, %r1;
  st.param.b32 [result+0], %r2;
  ret;
BIG:
  st.param.b32 [result+0], 99;
  ret;
}
)";
  RunResult r = run(R"(
  mov.u32 %d, 7;
  and.b32 %r1, %t, 1;
  setp.eq.u32 %p1, %r1, 0;
  { .param .b32 p0; st.param.b32 [p0+0], %t; .param .b32 r0;
    @%p1 call.uni (r0), twice, (p0);
    @%p1 ld.param.b32 %d, [r0+0]; }
)" + kStore,
                    {}, module);
  CHECK(r.report.findings.empty());
  CHECK(r.report.counters.spill_bytes == 0);
  for (std::uint32_t t = 0; t < 32; ++t) CHECK(r.out[t] == (t % 2 == 1 ? 7 : t > 20 ? 99 : 2 * t));
}

TEST_CASE("shfl within segments keeps to them and says when it left") {
  auto segment = [](const std::string& mode, const std::string& b, const std::string& c) {
    return values("shfl.sync." + mode + ".b32 %d|%p1, %t, " + b + ", " + c +
                  ", -1; @!%p1 add.u32 %d, %d, 100;");
  };
  // c = 0x1800 | clamp: segments of 8 lanes; as CUDA passes it for a width of 8.
  auto up = segment("up", "3", "0x1800"), down = segment("down", "3", "0x181f"),
       bfly = segment("bfly", "12", "0x181f"), idx = segment("idx", "11", "0x181f"),
       clamped = segment("idx", "7", "0x1804");
  for (std::uint32_t t = 0; t < 32; ++t) {
    CHECK(up[t] == (t % 8 < 3 ? t + 100 : t - 3));
    CHECK(down[t] == (t % 8 + 3 > 7 ? t + 100 : t + 3));
    // The butterfly may read an earlier segment, not a later one.
    CHECK(bfly[t] == ((t ^ 12) > (t | 7) ? t + 100 : (t ^ 12)));
    CHECK(idx[t] == (t & 24) + 3);
    CHECK(clamped[t] == t + 100);
  }
  // A source lane that changes with the lane, and member masks of parts of a warp.
  auto turned = values("sub.u32 %r1, 31, %t; shfl.sync.idx.b32 %d, %t, %r1, 31, -1;");
  CHECK(turned[5] == 26);
  auto halves = values(R"(
  setp.lt.u32 %p1, %t, 16;
  @%p1 bra LOW;
  shfl.sync.bfly.b32 %d, %t, 1, 31, 0xffff0000;
  redux.sync.or.b32 %r1, %t, 0xffff0000; vote.sync.ballot.b32 %r2, %p1, 0xffff0000;
  bra.uni JOIN;
LOW:
  shfl.sync.bfly.b32 %d, %t, 2, 31, 0x0000ffff;
  redux.sync.and.b32 %r1, %t, 0x0000ffff; vote.sync.ballot.b32 %r2, %p1, 0x0000ffff;
JOIN:
  add.u32 %d, %d, %r1; add.u32 %d, %d, %r2;
)");
  CHECK(halves[20] == 21 + 31 + 0);
  CHECK(halves[4] == 6 + 0 + 0xffff);
  CHECK(values("redux.sync.xor.b32 %d, %t, -1;")[0] == 0u);
  CHECK(values("redux.sync.min.u32 %d, %t, -1;")[31] == 0u);
  CHECK(values("shr.u32 %r1, %t, 4; match.all.sync.b32 %r2|%p1, %r1, -1; selp.u32 %d, 1, %r2, "
               "%p1;")[20] == 0u);
}

}  // namespace
}  // namespace attnloom::sim
