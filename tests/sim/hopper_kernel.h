// SPDX-License-Identifier: Apache-2.0
// Small sm_90a kernels as PTX text, and runs of them.
#pragma once

#include <optional>

#include "base/tensor_map.h"
#include "sim_test.h"

namespace attnloom::sim {

struct HopperSetup {
  std::vector<std::uint32_t> in;
  std::size_t out_words = 32;
  bool out_written = false;  // zeros from the host
  unsigned block = 32;
  unsigned shared_bytes = 1024;
  std::optional<TensorMapShape> map;  // of `in`, or of `out` where map_of_out
  bool map_of_out = false;
  std::string bounds = ".maxntid 1024, 1, 1";
  Options options;
};

// A kernel "k" with predicates %p0.., 32-bit registers %r0.., %d, %t (the thread), %w (its warp),
// %lane, floats %f0.., 64-bit ones %x0.., %in, %out and %map (the tensor map's address). Dynamic
// shared memory begins at 0.
RunResult run_hopper(std::string_view body, const HopperSetup& setup);

// The findings of 20 seeds: "" where none had any, otherwise the first.
std::string first_finding(std::string_view body, HopperSetup setup);
// The fewest findings over 20 seeds.
std::uint64_t fewest(std::string_view body, HopperSetup setup);

// out[t] = %d.
inline const std::string kStoreD =
    "mul.wide.u32 %x60, %t, 4; add.u64 %x60, %x60, %out; st.global.u32 [%x60], %d; ";
// Thread 0 initialises a barrier at `address`.
std::string init_barrier(int address, int count);
inline const std::string kInitDone = "@%p0 fence.mbarrier_init.release.cluster; bar.sync 0; ";
// Waits for the end of the phase of this parity ("0" or a register).
std::string wait_barrier(int address, std::string_view parity);

}  // namespace attnloom::sim
