// SPDX-License-Identifier: Apache-2.0
// Shared-memory tiles and register fragments of the mma family: the swizzle and the lane maps are
// decided here, once.
#pragma once

#include "loom/ops.cuh"

namespace loom {

LOOM_DEVICE int lane_index() {
  return static_cast<int>(threadIdx.x & 31u);
}
LOOM_DEVICE int warp_index() {
  return static_cast<int>(threadIdx.x >> 5);
}

// Rows of `columns` 16-bit elements: slabs of 64 columns, [rows][128 bytes] each, then a tail of
// 16, 32 or 64 for what is left. Within a slab 16-byte chunk j of row i is stored at j ^ (i & 7),
// in a narrower tail at j ^ (the row's number among those that share 128 bytes): the eight rows
// that one ldmatrix phase reads, and the eight chunks that eight lanes copy into one row, each fall
// into eight different bank groups. `whole_slabs`: a tail is as wide as a slab and swizzled as one,
// its last columns unused, since a product of values reads all of its slabs by one descriptor.
template <int rows, int columns, bool whole_slabs = false>
struct SharedTile {
  static_assert(columns % 16 == 0 && rows % 8 == 0, "ldmatrix reads 8 rows of two chunks");
  static constexpr int kRows = rows;
  static constexpr int kChunks = columns / 8;
  static constexpr int kSlabChunks = kChunks / 8 * 8;  // chunks that lie in full slabs
  static constexpr int kTail = columns % 64;
  static constexpr int kTailColumns = kTail == 48 || (whole_slabs && kTail != 0) ? 64 : kTail;
  static constexpr int kTailRowBytes = kTailColumns * 2;
  static constexpr int kSlabs = (columns + 63) / 64;  // with the tail's
  static constexpr int kSlabBytes = rows * 128;
  static constexpr int kBytes = rows * (kSlabChunks * 16 + kTailRowBytes);
  // Rows of a tail that share 128 bytes hold the same swizzle.
  static constexpr int kTailShift = kTailColumns == 16 ? 2 : kTailColumns == 32 ? 1 : 0;
  static constexpr int kTailMask = kTailColumns == 16 ? 1 : kTailColumns == 32 ? 3 : 7;

  // Where a lane starts: the same place in a slab and in the tail (unused where there is none).
  struct Place {
    u32 slab;
    u32 tail;
  };

  u32 base;  // a multiple of 128

  // Of the first slab; the others lie kSlabBytes behind one another. REQUIRES: chunk < 8.
  LOOM_DEVICE u32 slab_address(int row, int chunk) const {
    return base + static_cast<u32>(row * 128 + ((chunk ^ (row & 7)) << 4));
  }
  // `chunk` counts from the tail's first.
  LOOM_DEVICE u32 tail_address(int row, int chunk) const {
    return base + static_cast<u32>(kSlabChunks * rows * 16 + row * kTailRowBytes +
                                   ((chunk ^ ((row >> kTailShift) & kTailMask)) << 4));
  }

  // REQUIRES: chunk is 0 or 1.
  LOOM_DEVICE Place place(int row, int chunk) const {
    return {kSlabChunks == 0 ? 0u : slab_address(row, chunk),
            kTail == 0 ? 0u : tail_address(row, chunk)};
  }

  // The address `more_rows` below and `more_chunks` to the right of a place: one XOR and an
  // immediate offset, where the general form made ptxas keep an address per chunk in a register
  // and spill. REQUIRES: more_rows is a multiple of 8, and more_chunks of 2 unless the place is of
  // chunk 0; constants, where it is to be cheap.
  LOOM_DEVICE static u32 advance(const Place& place, int more_rows, int more_chunks) {
    if (more_chunks < kSlabChunks) {
      return (place.slab ^ static_cast<u32>((more_chunks & 7) << 4)) +
             static_cast<u32>((more_chunks >> 3) * kSlabBytes + more_rows * 128);
    }
    return (place.tail ^ static_cast<u32>((more_chunks - kSlabChunks) << 4)) +
           static_cast<u32>(more_rows * kTailRowBytes);
  }
};

// How a CTA's warps share a class: 16-row blocks first; warps beyond those split the KV tile.
template <int warps, class Class>
struct WarpLayout {
  static constexpr int kRowWarps = Class::kQ / 16 < warps ? Class::kQ / 16 : warps;
  static constexpr int kKvWarps = warps / kRowWarps;
  static constexpr int kBlocks = Class::kQ / (16 * kRowWarps);  // 16-row mma blocks per warp
  static constexpr int kKvPerWarp = Class::kKv / kKvWarps;
  static_assert(kBlocks * 16 * kRowWarps == Class::kQ && kRowWarps * kKvWarps == warps,
                "the warps divide the query tile");
  static_assert(kKvPerWarp % 16 == 0, "PV consumes 16 tokens at a time");
  static_assert(kKvWarps == 1 || kBlocks == 1, "warps that split the keys hold one row block each");

  LOOM_DEVICE static int row_begin() { return warp_index() % kRowWarps * kBlocks * 16; }
  LOOM_DEVICE static int kv_begin() {
    return kKvWarps == 1 ? 0 : warp_index() / kRowWarps * kKvPerWarp;
  }
};

// Accumulators of one 16 x (8 * n) block: element e of fragment j lies at row lane/4 + 8*(e/2),
// column 8j + 2*(lane%4) + e%2.
LOOM_DEVICE int fragment_row(int e, int lane = lane_index()) {
  return (lane >> 2) + 8 * (e >> 1);
}
LOOM_DEVICE int fragment_column(int j, int e, int lane = lane_index()) {
  return 8 * j + 2 * (lane & 3) + (e & 1);
}

template <int blocks, int fragments>
LOOM_DEVICE void clear(float (&accumulators)[blocks][fragments][4]) {
#pragma unroll
  for (int b = 0; b < blocks; ++b) {
#pragma unroll
    for (int j = 0; j < fragments; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) accumulators[b][j][e] = 0.0f;
    }
  }
}

// Where `lane` points ldmatrix for chunk 0 of the 16 rows from `row`; SharedTile::advance() goes on
// from there. For the A operand (16 rows x 16 columns) and, transposed, for two neighbouring
// 8-column blocks of a [k][n] tile (values).
template <class Tile>
LOOM_DEVICE typename Tile::Place lane_place(const Tile& tile, int row, int lane) {
  return tile.place(row + (lane & 15), lane >> 4);
}

// For the B operands of two neighbouring 8-row blocks of an [n][k] tile (keys).
template <class Tile>
LOOM_DEVICE typename Tile::Place lane_place_of_rows(const Tile& tile, int row, int lane) {
  return tile.place(row + (lane & 7) + ((lane >> 4) << 3), (lane >> 3) & 1);
}

}  // namespace loom
