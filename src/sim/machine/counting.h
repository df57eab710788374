// SPDX-License-Identifier: Apache-2.0
// What an access costs in the memory system, exactly, from its addresses.
#pragma once

#include <cstdint>

#include "sim/device.h"

namespace attnloom::sim {

// Shared memory moves 128 bytes a wavefront from 32 banks of 4 bytes. An access of 4 bytes or less
// a lane is one request, of 8 bytes two half-warps, of 16 bytes four quarter-warps; lanes that want
// the same word share it. Adds to shared_wavefronts, and to shared_conflicts what lies above one
// for each request that has lanes.
void count_shared(Counters& counters, const std::uint32_t* address, std::uint32_t mask,
                  std::uint32_t bytes);
// Rows of 16 bytes of one 8x8 matrix.
void count_matrix(Counters& counters, const std::uint32_t* row_address);
// Distinct 32-byte sectors of one instruction.
std::uint32_t count_sectors(const std::uint64_t* address, std::uint32_t mask, std::uint32_t bytes);

}  // namespace attnloom::sim
