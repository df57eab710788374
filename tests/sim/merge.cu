// SPDX-License-Identifier: Apache-2.0
// The protocol of the last arriver: CTAs write partial sums, the one that arrives last adds them up in order. FAULT
// plants one mistake each. ptx/merge_N.ptx is what NVRTC 13.0 makes of it with
//   --std=c++17 -arch=compute_80 -default-device -lineinfo -DFAULT=N
#ifndef FAULT
#define FAULT 0
#endif
constexpr int kThreads = 128;

__device__ unsigned count_arrival(unsigned* counter) {
#if FAULT == 7  // correct: the release and the acquire are in the atomic itself
  unsigned old;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(old) : "l"(counter) : "memory");
  return old;
#elif FAULT == 8  // the scope is too narrow
  __threadfence_block();
  return atomicAdd(counter, 1u);
#else
  return atomicAdd(counter, 1u);
#endif
}

extern "C" __global__ void __launch_bounds__(kThreads)
merge(const float* in, float* partial, unsigned* counters, float* out, unsigned splits) {
  __shared__ unsigned arrived;
  int thread = threadIdx.x, split = blockIdx.x, tile = blockIdx.y;
  unsigned* counter = counters + tile;
  float* mine = partial + (tile * splits + split) * kThreads + thread;
  float value = 2.0f * in[(tile * splits + split) * kThreads + thread];
#if FAULT == 2  // counted before the partial sum is there
  if (thread == 0) {
    __threadfence();
    arrived = count_arrival(counter);
  }
  *mine = value;
  __syncthreads();
#else
  *mine = value;
#if FAULT != 1 && FAULT != 7 && FAULT != 8  // 1: no fence before the counter
  __threadfence();
#endif
#if FAULT != 6  // 6: nobody waits for the other warps' stores
  __syncthreads();
#endif
  if (thread == 0) arrived = count_arrival(counter);
  __syncthreads();
#endif
#if FAULT == 5  // one too early
  if (arrived != splits - 2) return;
#else
  if (arrived != splits - 1) return;
#endif
#if FAULT != 7 && FAULT != 9  // 9: no fence before the reads
  __threadfence();
#endif
  float sum = 0;
#if FAULT == 4  // the last slot is forgotten
  for (unsigned s = 0; s + 1 < splits; ++s) sum += partial[(tile * splits + s) * kThreads + thread];
#else
  for (unsigned s = 0; s < splits; ++s) sum += partial[(tile * splits + s) * kThreads + thread];
#endif
  out[tile * kThreads + thread] = sum;
#if FAULT != 3  // 3: the next launch begins with a full counter
  if (thread == 0) *counter = 0;
#endif
}
