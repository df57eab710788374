// SPDX-License-Identifier: Apache-2.0
// The ops that only sm_90a has: barriers in shared memory that count bytes, bulk copies by tensor
// map, products of a warpgroup, and who holds the registers. Operand order is that of the PTX
// instruction. Barriers and tiles are 32-bit shared-memory addresses.
//
// clang-format off
//   barrier_init(b, count)            one thread; barrier_init_done() before others may use it
//   barrier_arrive(b), _expect(b, n)  one of `count` arrivals, the second also announces n bytes of copies
//   barrier_wait(b, parity)           until the phase of this parity is over
//   copy_tile(to, map, b, c0..c3)     a tile of a rank-4 tensor map, whose bytes count on b
//   prefetch_map(map)                 the map itself, so that the first copy need not wait for it
//   fence_async_proxy()               generic stores before it are seen by copies and products after it
//   named_sync(id, threads), named_arrive(id, threads)   barrier id of `threads` threads, waiting and not
//   give_registers<n>(), take_registers<n>()   registers a thread from here on; all warps of a warpgroup
//   products_begin(), _end()          before the first product of a group; closes the group
//   products_wait<n>()                until at most n groups are in flight
//   hold(x)                           what was accumulated may be read from here on, not earlier; what comes
//                                     of an integer is computed behind this place
//   multiply_shared(d, a, b, accumulate, Element)  d (+)= a b^T: tiles by descriptor, both with k along rows
//   multiply_held(d, a, b, Element)   d += a b: a in registers, b by descriptor with k across rows
// clang-format on
#pragma once

#include "loom/ops_sm80.cuh"

namespace loom {

LOOM_DEVICE void barrier_init(u32 barrier, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

LOOM_DEVICE void barrier_init_done() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

LOOM_DEVICE void barrier_arrive(u32 barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

LOOM_DEVICE void barrier_expect(u32 barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

LOOM_DEVICE void barrier_wait(u32 barrier, u32 parity) {
  asm volatile(
      "{.reg .pred done; AGAIN: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1; @!done "
      "bra AGAIN;}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

LOOM_DEVICE void copy_tile(u32 to, const void* map, u32 barrier, int c0, int c1, int c2, int c3) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, "
      "{%3, %4, %5, %6}], [%2];" ::"r"(to),
      "l"(map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
      : "memory");
}

LOOM_DEVICE void prefetch_map(const void* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

LOOM_DEVICE void fence_async_proxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

LOOM_DEVICE void named_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

LOOM_DEVICE void named_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

template <int registers>
LOOM_DEVICE void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}

template <int registers>
LOOM_DEVICE void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}

LOOM_DEVICE void products_begin() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

LOOM_DEVICE void products_end() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int groups>
LOOM_DEVICE void products_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(groups) : "memory");
}

LOOM_DEVICE void hold(float& x) {
  asm volatile("" : "+f"(x)::"memory");
}
LOOM_DEVICE void hold(u32& x) {
  asm volatile("" : "+r"(x));
}

// One instruction a width, which names every accumulator: the lists are as long as it is wide.
#define LOOM_D2(d, j)                                                                        \
  "+f"((d)[j][0]), "+f"((d)[j][1]), "+f"((d)[j][2]), "+f"((d)[j][3]), "+f"((d)[(j) + 1][0]), \
      "+f"((d)[(j) + 1][1]), "+f"((d)[(j) + 1][2]), "+f"((d)[(j) + 1][3])
#define LOOM_D8(d, j) LOOM_D2(d, j), LOOM_D2(d, (j) + 2), LOOM_D2(d, (j) + 4), LOOM_D2(d, (j) + 6)
#define LOOM_D10(d, j) LOOM_D8(d, j), LOOM_D2(d, (j) + 8)
#define LOOM_D12(d, j) LOOM_D8(d, j), LOOM_D2(d, (j) + 8), LOOM_D2(d, (j) + 10)
#define LOOM_D16(d, j) LOOM_D8(d, j), LOOM_D8(d, (j) + 8)
#define LOOM_D32(d, j) LOOM_D16(d, j), LOOM_D16(d, (j) + 16)
#define LOOM_R32                                                                           \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23," \
  "%24,%25,%26,%27,%28,%29,%30,%31"
#define LOOM_R40 LOOM_R32 ",%32,%33,%34,%35,%36,%37,%38,%39"
#define LOOM_R48 LOOM_R40 ",%40,%41,%42,%43,%44,%45,%46,%47"
#define LOOM_R64 LOOM_R48 ",%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define LOOM_R128                                                                        \
  LOOM_R64                                                                               \
  ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84" \
  ",%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,%103"     \
  ",%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,%119"     \
  ",%120,%121,%122,%123,%124,%125,%126,%127"
// `n` columns, registers and their operands; then the numbers of the operands behind them.
#define LOOM_PRODUCTS(n, Element, type, R, D, o0, o1, o2, o3, o4)                                 \
  LOOM_DEVICE void multiply_shared(float(&d)[(n) / 8][4], u64 a, u64 b, bool accumulate,          \
                                   Element) {                                                     \
    asm volatile("{.reg .pred more; setp.ne.b32 more, " o2                                        \
                 ", 0; wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type " {" R      \
                 "}, " o0 ", " o1 ", more, 1, 1, 0, 0;}"                                          \
                 : D(d, 0)                                                                        \
                 : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)));                            \
  }                                                                                               \
  LOOM_DEVICE void multiply_held(float(&d)[(n) / 8][4], const u32(&a)[4], u64 b, Element) {       \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type " {" R "}, {" o0 \
                 "," o1 "," o2 "," o3 "}, " o4 ", 1, 1, 1, 1;"                                    \
                 : D(d, 0)                                                                        \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                           \
  }
LOOM_PRODUCTS(64, Bf16, "bf16", LOOM_R32, LOOM_D8, "%32", "%33", "%34", "%35", "%36")
LOOM_PRODUCTS(64, F16, "f16", LOOM_R32, LOOM_D8, "%32", "%33", "%34", "%35", "%36")
LOOM_PRODUCTS(80, Bf16, "bf16", LOOM_R40, LOOM_D10, "%40", "%41", "%42", "%43", "%44")
LOOM_PRODUCTS(80, F16, "f16", LOOM_R40, LOOM_D10, "%40", "%41", "%42", "%43", "%44")
LOOM_PRODUCTS(96, Bf16, "bf16", LOOM_R48, LOOM_D12, "%48", "%49", "%50", "%51", "%52")
LOOM_PRODUCTS(96, F16, "f16", LOOM_R48, LOOM_D12, "%48", "%49", "%50", "%51", "%52")
LOOM_PRODUCTS(128, Bf16, "bf16", LOOM_R64, LOOM_D16, "%64", "%65", "%66", "%67", "%68")
LOOM_PRODUCTS(128, F16, "f16", LOOM_R64, LOOM_D16, "%64", "%65", "%66", "%67", "%68")
LOOM_PRODUCTS(256, Bf16, "bf16", LOOM_R128, LOOM_D32, "%128", "%129", "%130", "%131", "%132")
LOOM_PRODUCTS(256, F16, "f16", LOOM_R128, LOOM_D32, "%128", "%129", "%130", "%131", "%132")
#undef LOOM_PRODUCTS
#undef LOOM_D2
#undef LOOM_D8
#undef LOOM_D10
#undef LOOM_D12
#undef LOOM_D16
#undef LOOM_D32
#undef LOOM_R32
#undef LOOM_R40
#undef LOOM_R48
#undef LOOM_R64
#undef LOOM_R128

}  // namespace loom
