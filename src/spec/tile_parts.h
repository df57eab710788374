// SPDX-License-Identifier: Apache-2.0
// What the tile tables of every attention family count alike. Pure; thread-safe. For src/spec only.
#pragma once

#include <string>

#include "spec/spec.h"
#include "spec/tiles.h"
#include "spec/types.h"

namespace attnloom {

inline constexpr int kTileStages = 2;
inline constexpr int kKeptBytes = 112;  // Kept, in loom/work.cuh

// Beside the rows of a stage: the position of each key of block-sparse rows, or the bits of a
// custom mask (MaskTile in loom/mask.cuh).
int beside_bytes(const Spec& spec, const TileClass& tile);

// Bytes of a row of `columns` 16-bit elements: slabs of 64 columns and a tail of 16, 32 or 64
// (SharedTile in loom/tile.cuh).
int row_bytes(int columns);

// Of all stages of the ring of K and V tiles, with what stands beside them: positions of
// block-sparse rows, or the bits of a custom mask.
int ring_bytes(const Spec& spec, const TileClass& tile);

// By shared memory, of which the driver takes some itself, and by registers.
int ctas_per_sm(const TargetLimits& limits, int shared, int registers, int warps);

// "tile {"q": 64, "kv": 32}"
std::string describe(const TileClass& tile);

Status too_much_shared_memory(const Spec& spec, const TileClass& tile, int bytes);

}  // namespace attnloom
