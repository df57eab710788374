// SPDX-License-Identifier: Apache-2.0
// A warpgroup's products: tiles as operands, accumulators to weights, and rows of accumulators to
// rows of memory. Accumulators lie as those of the mma family (loom/tile.cuh), 16 rows a warp.
#pragma once

#include "loom/ops_sm90.cuh"
#include "loom/tile.cuh"

namespace loom {

// Rows of slabs of 64 columns, as many as hold `columns`.
template <int rows, int columns>
using SlabTile = SharedTile<rows, columns, true>;

// Of a tile whose swizzle is the 128-byte one: eight rows are a pattern of 1024 bytes. `across`:
// between slabs of 64 columns, read where the product's k goes across rows. An operand lies
// `offset` bytes behind the first, a constant: added to a field, it costs a step one instruction.
LOOM_DEVICE u64 tile_descriptor(u32 first, int offset, int across) {
  constexpr u32 kPattern = 1024 >> 4;
  constexpr u32 kSwizzle128 = u32{1} << 30;
  const u32 low = (first >> 4) + static_cast<u32>((offset >> 4) | (across >> 4) << 16);
  return static_cast<u64>(kSwizzle128 | kPattern) << 32 | low;
}

// 16 columns from 16 * step on, of all rows from `first` on, an address: queries and keys.
template <class Tile>
LOOM_DEVICE u64 operand_of_rows(u32 first, int step) {
  static_assert(Tile::kTailColumns % 64 == 0, "slabs of 64 columns only");
  return tile_descriptor(first, step / 4 * Tile::kSlabBytes + step % 4 * 32, 16);
}

// 16 rows from 16 * step on, of all columns: values.
template <class Tile>
LOOM_DEVICE u64 operand_of_columns(const Tile& tile, int step) {
  static_assert(Tile::kTailColumns % 64 == 0, "slabs of 64 columns only");
  return tile_descriptor(tile.base, step * 2048, Tile::kSlabBytes);
}

template <int fragments>
LOOM_DEVICE void hold(float (&accumulators)[fragments][4]) {
#pragma unroll
  for (int j = 0; j < fragments; ++j) {
#pragma unroll
    for (int e = 0; e < 4; ++e) hold(accumulators[j][e]);
  }
}

// Logits become the A operand of the next product as they lie: no shuffle.
template <int fragments, class Element>
LOOM_DEVICE void pack_weights(u32 (&weights)[fragments / 2][4], const float (&logits)[fragments][4],
                              Element tag) {
#pragma unroll
  for (int k = 0; k < fragments / 2; ++k) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float(&pair)[4] = logits[2 * k + i / 2];
      weights[k][i] = pack2(pair[2 * (i & 1)], pair[2 * (i & 1) + 1], tag);
    }
  }
}

// Lane i of a quad gives its x[j] to lane j, which keeps it as x[i].
template <class T>
LOOM_DEVICE void transpose_quad(T (&x)[4]) {
#pragma unroll
  for (int step = 1; step < 4; step *= 2) {
    const bool upper = (lane_index() & step) != 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i & step) continue;
      const T got = __shfl_xor_sync(~0u, upper ? x[i] : x[i + step], step);
      x[i] = upper ? got : x[i];
      x[i + step] = upper ? x[i + step] : got;
    }
  }
}

}  // namespace loom
