// SPDX-License-Identifier: Apache-2.0
// Shared-memory tiles and register fragments of the mma family: the swizzle and the lane maps are
// decided here, once.
#pragma once

#include "loom/ops.cuh"

namespace loom {

constexpr int kWarpCount = 4;
constexpr int kThreadCount = 32 * kWarpCount;

LOOM_DEVICE int lane_index() {
  return static_cast<int>(threadIdx.x & 31u);
}
LOOM_DEVICE int warp_index() {
  return static_cast<int>(threadIdx.x >> 5);
}

// Rows of `columns` 16-bit elements. 16-byte chunk j of row i is stored at j ^ (i & 7): the eight
// rows that one ldmatrix phase reads, and the eight chunks that eight lanes copy into one row, each
// fall into eight different bank groups.
template <int rows, int columns>
struct SharedTile {
  static_assert(columns == 64 || columns == 128, "advance() needs rows of 128 or 256 bytes");
  static constexpr int kRows = rows;
  static constexpr int kChunks = columns / 8;
  static constexpr int kRowBytes = columns * 2;
  static constexpr int kBytes = rows * kRowBytes;

  u32 base;  // a multiple of kRowBytes

  LOOM_DEVICE u32 chunk_address(int row, int chunk) const {
    return base + static_cast<u32>(row * kRowBytes + ((chunk ^ (row & 7)) << 4));
  }

  // The address `rows` below and `chunks` to the right of one that chunk_address gave for chunk 0
  // or 1: one XOR and an immediate offset, where the general form made ptxas keep an address per
  // chunk in a register and spill. REQUIRES: more_rows is a multiple of 8, more_chunks of 2.
  LOOM_DEVICE static u32 advance(u32 address, int more_rows, int more_chunks) {
    return (address ^ static_cast<u32>(more_chunks << 4)) + static_cast<u32>(more_rows * kRowBytes);
  }
};

// How the four warps share a class: one row block of 16 and four quarters of the KV tile, or four
// row blocks.
template <class Class>
struct WarpLayout {
  static constexpr int kRowWarps = Class::kQ == 16 ? 1 : kWarpCount;
  static constexpr int kKvWarps = kWarpCount / kRowWarps;
  static constexpr int kBlocks = Class::kQ / (16 * kRowWarps);  // 16-row mma blocks per warp
  static constexpr int kKvPerWarp = Class::kKv / kKvWarps;
  static_assert(kBlocks * 16 * kRowWarps == Class::kQ, "query tile must be 16, 64 or 128 rows");
  static_assert(kKvPerWarp % 16 == 0, "PV consumes 16 tokens at a time");

  LOOM_DEVICE static int row_begin() { return kRowWarps == 1 ? 0 : warp_index() * kBlocks * 16; }
  LOOM_DEVICE static int kv_begin() { return kKvWarps == 1 ? 0 : warp_index() * kKvPerWarp; }
};

// Accumulators of one 16 x (8 * n) block: element e of fragment j lies at row lane/4 + 8*(e/2),
// column 8j + 2*(lane%4) + e%2.
LOOM_DEVICE int fragment_row(int e) {
  return (lane_index() >> 2) + 8 * (e >> 1);
}
LOOM_DEVICE int fragment_column(int j, int e) {
  return 8 * j + 2 * (lane_index() & 3) + (e & 1);
}

// Where a lane points ldmatrix for row 0, chunk 0 of a tile; SharedTile::advance() goes on from
// there. For the A operand (16 rows x 16 columns) and, transposed, for two neighbouring 8-column
// blocks of a [k][n] tile (values).
template <class Tile>
LOOM_DEVICE u32 lane_address(const Tile& tile, int row) {
  return tile.chunk_address(row + (lane_index() & 15), lane_index() >> 4);
}

// For the B operands of two neighbouring 8-row blocks of an [n][k] tile (keys).
template <class Tile>
LOOM_DEVICE u32 lane_address_of_rows(const Tile& tile, int row) {
  const int lane = lane_index();
  return tile.chunk_address(row + (lane & 7) + ((lane >> 4) << 3), (lane >> 3) & 1);
}

}  // namespace loom
