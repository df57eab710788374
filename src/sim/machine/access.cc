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

std::byte* global_at(Cta& cta, const GlobalAccess& a, int lane, std::uint64_t address,
                     std::uint32_t bytes, bool is_write) {
  Launch& launch = cta.launch;
  Allocation* allocation = launch.allocation(address, bytes);
  if (allocation == nullptr) {
    launch.findings.add(kind::kOutOfBounds, a.ins, [&] {
      return std::to_string(bytes) + (is_write ? " bytes written at " : " bytes read at ") +
             launch.memory.describe(address) + ", " + cta.describe(a.warp, lane);
    });
    return nullptr;
  }
  std::size_t offset = address - allocation->base;
  if ((address & (bytes - 1)) != 0) {
    launch.findings.add(kind::kMisaligned, a.ins, [&] {
      return std::to_string(bytes) + " bytes at " + launch.memory.describe(address) + ", " +
             cta.describe(a.warp, lane);
    });
    return nullptr;
  }
  if (is_write) {
    allocation->mark_written(offset, bytes);
    if (cta.checks) launch.shadow.write(a, lane, *allocation, offset, bytes);
  } else if (cta.checks) {
    if (!allocation->is_written(offset, bytes)) {
      launch.findings.add(kind::kUninitialisedGlobal, a.ins, [&] {
        return "never written: " + launch.memory.describe(address) + ", " +
               cta.describe(a.warp, lane);
      });
    }
    launch.shadow.read(a, lane, *allocation, offset, bytes);
  }
  return allocation->data.get() + offset;
}

}  // namespace attnloom::sim
