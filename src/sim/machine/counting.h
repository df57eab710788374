// SPDX-License-Identifier: Apache-2.0
// What an access costs in the memory system, exactly, from its addresses.
#pragma once

#include <array>
#include <cstdint>

#include "sim/device.h"

namespace attnloom::sim {

// Shared memory moves 128 bytes a wavefront from 32 banks of 4 bytes. An access of 4 bytes or less
// a lane is one request, of 8 bytes two half-warps, of 16 bytes four quarter-warps; lanes that want
// the same word share it. Adds to shared_wavefronts, and to shared_conflicts what lies above one
// for each request that has lanes; the latter is returned.
std::uint32_t count_shared(Counters& counters, const std::uint32_t* address, std::uint32_t mask,
                           std::uint32_t bytes);
// Rows of 16 bytes of one 8x8 matrix.
std::uint32_t count_matrix(Counters& counters, const std::uint32_t* row_address);
// The distinct 32-byte sectors of one instruction, ascending; returns how many. `sector` has room
// for kMostSectors.
inline constexpr std::uint32_t kMostSectors = 64;
std::uint32_t list_sectors(const std::uint64_t* address, std::uint32_t mask, std::uint32_t bytes,
                           std::uint64_t* sector);
std::uint32_t count_sectors(const std::uint64_t* address, std::uint32_t mask, std::uint32_t bytes);

// Which sectors a CTA loaded last: Counters::global_fetch_sectors.
class SectorCache {
 public:
  void clear() { held_.fill(0); }
  std::uint32_t count_missing(const std::uint64_t* sector, std::uint32_t count) {
    std::uint32_t missing = 0;
    for (std::uint32_t k = 0; k < count; ++k) {
      std::uint64_t& held = held_[sector[k] % held_.size()];
      missing += held != sector[k];
      held = sector[k];
    }
    return missing;
  }

 private:
  std::array<std::uint64_t, 4096> held_ = {};
};

}  // namespace attnloom::sim
