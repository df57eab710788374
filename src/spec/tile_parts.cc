// SPDX-License-Identifier: Apache-2.0
#include "spec/tile_parts.h"

#include <algorithm>

namespace attnloom {
namespace {

constexpr int kReservedBytesPerCta = 1024;  // of shared memory, by the driver (sm_80 and later)

// Of a row of K and V, whose tiles count an 8-bit cache's bytes in pairs.
int kv_row_bytes(const Spec& spec, int columns) {
  return row_bytes(columns * bytes_of(spec.dtype.kv) / 2);
}

}  // namespace

int beside_bytes(const Spec& spec, const TileClass& tile) {
  if (spec.layout.kv == KvLayout::kBsr) return 4 * tile.kv;
  if (!spec.variant.mask.custom) return 0;
  const int tokens = (tile.q + spec.group_size - 2) / spec.group_size + 1;
  return (tokens * ((tile.kv + 62) / 32) * 4 + 15) / 16 * 16;
}

int row_bytes(int columns) {
  const int tail = columns % 64;
  return (columns - tail + (tail == 48 ? 64 : tail)) * 2;
}

int ring_bytes(const Spec& spec, const TileClass& tile) {
  const int rows = kv_row_bytes(spec, spec.head_dim.qk) + kv_row_bytes(spec, spec.head_dim.vo);
  return tile.stages * (tile.kv * rows + beside_bytes(spec, tile));
}

int ctas_per_sm(const TargetLimits& limits, int shared, int registers, int warps) {
  return std::min(limits.shared_bytes_per_sm / (shared + kReservedBytesPerCta),
                  limits.registers_per_sm / (32 * warps * registers));
}

std::string describe(const TileClass& tile) {
  return "tile {\"q\": " + std::to_string(tile.q) + ", \"kv\": " + std::to_string(tile.kv) + "}";
}

Status too_much_shared_memory(const Spec& spec, const TileClass& tile, int bytes) {
  return make_error(Code::kResourceLimit, "$.tile",
                    describe(tile) + " needs " + std::to_string(bytes) +
                        " bytes of shared memory, " + spec.target->name() + " has " +
                        std::to_string(target_limits(*spec.target).shared_bytes_per_cta),
                    "use a smaller tile or \"auto\"");
}

}  // namespace attnloom
