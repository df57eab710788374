// SPDX-License-Identifier: Apache-2.0
// A small warp-specialised kernel: out = A B on tiles of 128 x 64, with A [m][k] and B [k][64] in bf16. Warpgroup 0
// loads tiles of 64 k into a ring of two stages, warpgroups 1 and 2 multiply 64 rows each; a CTA takes every
// gridDim.x-th tile. FAULT plants one mistake each.
#ifndef FAULT
#define FAULT 0
#endif
typedef unsigned int u32;
typedef unsigned long long u64;

constexpr int kTileM = 128, kN = 64, kTileK = 64, kStages = 2;
constexpr u32 kBytesA = kTileM * kTileK * 2, kBytesB = kTileK * kN * 2, kStageBytes = kBytesA + kBytesB;
constexpr u32 kOut = kStages * kStageBytes, kFull = kOut + kTileM * kN * 2, kEmpty = kFull + 8 * kStages;

struct __align__(64) Map {
  char bytes[128];
};
struct Params {
  Map a, b, out;
  int tiles, steps;
};

__device__ u32 shared_base() {
  extern __shared__ __align__(1024) unsigned char memory[];
  return static_cast<u32>(__cvta_generic_to_shared(memory));
}
__device__ void init(u32 barrier, u32 count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count));
}
__device__ void wait(u32 barrier, u32 parity) {
  asm volatile(
      "{.reg .pred p; AGAIN: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @!p bra AGAIN;}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
__device__ void arrive(u32 barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ void expect(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ void load(u32 to, const Map* map, u32 barrier, int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::
          "r"(to),
      "l"(map), "r"(barrier), "r"(x), "r"(y)
      : "memory");
}
__device__ u64 descriptor(u32 address) {
  constexpr u64 kMode = FAULT == 3 ? 2 : 1;  // 3: another swizzle than the map's
  return static_cast<u64>(address >> 4) | u64{1024 >> 4} << 32 | u64{1} << 16 | kMode << 62;
}
__device__ void multiply(float (&d)[32], u64 a, u64 b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
      "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, %32, %33, 1, 1, 1, 0, 1;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
        "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),
        "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),
        "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
      : "l"(a), "l"(b));
}
template <int kLeft>
__device__ void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}
__device__ void keep(float (&d)[32]) {
#pragma unroll
  for (int j = 0; j < 32; ++j) asm volatile("" : "+f"(d[j])::"memory");
}
__device__ u32 pack(float low, float high) {
  u32 x;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(x) : "f"(high), "f"(low));
  return x;
}

__device__ void produce(const Params& p, u32 base) {
  int turn = 0;
  for (int tile = blockIdx.x; tile < p.tiles; tile += gridDim.x) {
    for (int step = 0; step < p.steps; ++step, ++turn) {
      int stage = turn % kStages;
      u32 at = base + stage * kStageBytes, full = base + kFull + 8 * stage;
#if FAULT != 11  // 11: does not wait until the stage is free
      wait(base + kEmpty + 8 * stage, (turn / kStages & 1) ^ 1);
#endif
      expect(full, FAULT == 4 ? kStageBytes - 16 : kStageBytes);  // 4: fewer bytes than come
      load(at, &p.a, full, step * kTileK, tile * kTileM);
      load(at + kBytesA, &p.b, full, 0, step * kTileK);
    }
  }
}

// The 64 x 64 sums as bf16 to shared memory, from where one bulk copy takes them.
__device__ void store(const Params& p, const float (&d)[32], u32 base, int group, int tile, bool leads) {
  u32 to = base + kOut + group * (64 * kN * 2);
#if FAULT != 12  // 12: overwrites what the last store may still read
  if (leads) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
#endif
  asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");
  int lane = threadIdx.x & 31, row = (threadIdx.x >> 5 & 3) * 16 + (lane >> 2);
#pragma unroll
  for (int j = 0; j < 16; ++j) {
    u32 at = to + (row + 8 * (j & 1)) * (kN * 2) + (j / 2 * 8 + (lane & 3) * 2) * 2;
    u32 value = pack(d[2 * j], d[2 * j + 1]);
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(at), "r"(value) : "memory");
  }
#if FAULT != 7  // 7: the copy need not see the stores
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
  asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");
  if (!leads) return;
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(&p.out),
               "r"(to), "r"(0), "r"(tile * kTileM + group * 64)
               : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

__device__ void consume(const Params& p, u32 base) {
  int group = (threadIdx.x >> 7) - 1, turn = 0;
  bool leads = (threadIdx.x & 127) == 0;
  for (int tile = blockIdx.x; tile < p.tiles; tile += gridDim.x) {
    float d[32];
#pragma unroll
    for (int j = 0; j < 32; ++j) d[j] = 0;
    for (int step = 0; step < p.steps; ++step, ++turn) {
      int stage = turn % kStages;
      u32 at = base + stage * kStageBytes;
      wait(base + kFull + 8 * stage, (turn / kStages & 1) ^ (FAULT == 1 ? 1 : 0));  // 1: the wrong phase
      asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
      for (int k = 0; k < 4; ++k)
        multiply(d, descriptor(at + group * 8192 + k * 32), descriptor(at + kBytesA + k * 2048));
      asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#if FAULT == 5  // releases the stage while the products read it
      if (leads) arrive(base + kEmpty + 8 * stage);
      wait_products<0>();
#else
      wait_products<0>();
      if (leads && (FAULT != 2 || group == 0)) arrive(base + kEmpty + 8 * stage);  // 2: an arrival is missing
#endif
      keep(d);
    }
    store(p, d, base, group, tile, leads);
  }
  if (leads) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

extern "C" __global__ void __launch_bounds__(384, 1) ring(const __grid_constant__ Params p) {
  u32 base = shared_base();
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < kStages; ++stage) {
      init(base + kFull + 8 * stage, 1);
      init(base + kEmpty + 8 * stage, 2);
    }
#if FAULT != 8  // 8: the copies need not see the barriers
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
  }
  __syncthreads();
  if (threadIdx.x < 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x == 0) produce(p, base);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    consume(p, base);
  }
}
