// SPDX-License-Identifier: Apache-2.0
// Checks that stand between a lane's address and the bytes.
#include <string>

#include "sim/machine/state.h"

namespace attnloom::sim {

std::string Cta::describe(const Warp& w, int lane) const {
  std::string text = "CTA (" + std::to_string(index[0]) + "," + std::to_string(index[1]) + "," +
                     std::to_string(index[2]) + ") warp " + std::to_string(w.id);
  return lane < 0 ? text : text + " lane " + std::to_string(lane);
}

std::byte* shared_outside(Cta& cta, const SharedAccess& a, int lane, std::uint64_t address,
                          std::uint32_t bytes) {
  bool inside = address < cta.shared_bytes && cta.shared_bytes - address >= bytes;
  cta.launch.findings.add(inside ? kind::kMisaligned : kind::kOutOfBounds, a.ins, [&] {
    return std::to_string(bytes) + " bytes at shared+" +
           std::to_string(static_cast<std::int64_t>(address)) + " of " +
           std::to_string(cta.shared_bytes) + ", " + cta.describe(a.warp, lane);
  });
  return nullptr;
}

std::byte* global_outside(Cta& cta, const GlobalAccess& a, int lane, std::uint64_t address,
                          std::uint32_t bytes, bool is_write) {
  Launch& launch = cta.launch;
  bool inside = launch.allocation(address, bytes) != nullptr;
  launch.findings.add(inside ? kind::kMisaligned : kind::kOutOfBounds, a.ins, [&] {
    const char* what = inside ? " bytes at " : is_write ? " bytes written at " : " bytes read at ";
    return std::to_string(bytes) + what + launch.memory.describe(address) + ", " +
           cta.describe(a.warp, lane);
  });
  return nullptr;
}

void report_unwritten(Cta& cta, const GlobalAccess& a, int lane, std::uint64_t address) {
  cta.launch.findings.add(kind::kUninitialisedGlobal, a.ins, [&] {
    return "never written: " + cta.launch.memory.describe(address) + ", " +
           cta.describe(a.warp, lane);
  });
}

}  // namespace attnloom::sim
