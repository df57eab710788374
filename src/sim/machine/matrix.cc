// SPDX-License-Identifier: Apache-2.0
// ldmatrix, stmatrix and movmatrix: lane 8k + r holds the address of row r of matrix k; lane l gets
// columns 2*(l%4) and the next of row l/4.
#include <string>

#include "sim/machine/counting.h"
#include "sim/machine/exec.h"
#include "sim/machine/state.h"

namespace attnloom::sim {
namespace {

void row_addresses(const Warp& warp, const Ins& ins, std::uint32_t slot, std::uint32_t* address) {
  const std::byte* row = warp.registers + slot;
  for (int l = 0; l < kLanes; ++l) {
    address[l] = ins.address_is_64
                     ? static_cast<std::uint32_t>(reinterpret_cast<const std::uint64_t*>(row)[l])
                     : reinterpret_cast<const std::uint32_t*>(row)[l];
    address[l] += static_cast<std::uint32_t>(ins.imm);
  }
}

// d[l] = the pair of column l/4 in rows 2*(l%4) and the next: the transposed matrix.
void transpose(const std::uint16_t (&m)[64], std::uint32_t* d) {
  for (int l = 0; l < kLanes; ++l) {
    int row = 2 * (l & 3), column = l >> 2;
    d[l] = m[row * 8 + column] | std::uint32_t{m[(row + 1) * 8 + column]} << 16;
  }
}

void require_full(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask) {
  if (mask == ~0u) return;
  cta.launch.findings.add(kind::kInactiveLanes, ins, [&] {
    return "a warp-wide instruction with lane mask " + std::to_string(mask) + ", " +
           cta.describe(warp, -1);
  });
}

}  // namespace

void exec_before_mma(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask) {
  ++cta.launch.counters.mma;
  require_full(cta, warp, ins, mask);
}

void exec_load_matrix(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask) {
  require_full(cta, warp, ins, mask);
  std::uint32_t address[kLanes];
  row_addresses(warp, ins, ins.more[ins.count], address);
  SharedAccess access = cta.shared_access(warp, ins);
  alignas(64) std::uint16_t m[4][64];
  for (int k = 0; k < ins.count; ++k) {
    for (int r = 0; r < 8; ++r) {
      int lane = 8 * k + r;
      if (const std::byte* p = shared_at(cta, access, lane, address[lane], 16, false)) {
        std::memcpy(&m[k][8 * r], p, 16);
      } else {
        std::memset(&m[k][8 * r], 0xff, 16);
      }
    }
    cta.launch.counters.ldmatrix_conflicts += count_matrix(cta.launch.counters, address + 8 * k);
  }
  for (int k = 0; k < ins.count; ++k) {
    auto* d = reinterpret_cast<std::uint32_t*>(warp.registers + ins.more[k]);
    if ((ins.flags & 1) != 0) {
      transpose(m[k], d);
    } else {
      std::memcpy(d, m[k], 128);
    }
  }
}

void exec_move_matrix(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask) {
  require_full(cta, warp, ins, mask);
  std::uint16_t m[64];
  std::memcpy(m, warp.registers + ins.more[1], 128);
  transpose(m, reinterpret_cast<std::uint32_t*>(warp.registers + ins.more[0]));
}

void exec_store_matrix(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask) {
  require_full(cta, warp, ins, mask);
  std::uint32_t address[kLanes];
  row_addresses(warp, ins, ins.more[0], address);
  SharedAccess access = cta.shared_access(warp, ins);
  for (int k = 0; k < ins.count; ++k) {
    std::uint16_t m[64];
    alignas(64) std::uint32_t turned[kLanes];
    std::memcpy(m, warp.registers + ins.more[1 + k], 128);
    if ((ins.flags & 1) != 0) {
      transpose(m, turned);
      std::memcpy(m, turned, 128);
    }
    for (int r = 0; r < 8; ++r) {
      int lane = 8 * k + r;
      if (std::byte* p = shared_at(cta, access, lane, address[lane], 16, true))
        std::memcpy(p, &m[8 * r], 16);
    }
    count_matrix(cta.launch.counters, address + 8 * k);
  }
}

}  // namespace attnloom::sim
