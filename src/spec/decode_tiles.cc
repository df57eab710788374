// SPDX-License-Identifier: Apache-2.0
#include "spec/decode_tiles.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "spec/tile_parts.h"

namespace attnloom {
namespace {

constexpr int kWarps = 4;
// Loads stream best from three small CTAs an SM with 64 to 96 KB in flight together; a fourth
// would halve the KV tile (and so what is in flight) at most head dims.
constexpr int kMostCtasPerSm = 3;
constexpr int kMaxLaneElements = 32;

// Lanes that share a row, and groups of them in a CTA (LaneGroups in loom/lane_groups.cuh).
int lanes_of(const Spec& spec) {
  return std::max(spec.head_dim.qk, spec.head_dim.vo) > 8 * kMaxLaneElements ? 16 : 8;
}

// Query and values of a lane in fp32, four keys in flight, and about 48 for addresses, logits and
// softmax state.
int registers_per_thread(const Spec& spec) {
  return (spec.head_dim.qk + spec.head_dim.vo) / lanes_of(spec) + 4 * 8 + 48;
}

int shared_bytes(const Spec& spec, const TileClass& tile) {
  const int query = (spec.head_dim.qk * 2 + 127) / 128 * 128;
  const int groups = 32 * kWarps / lanes_of(spec);
  // The epilogue: for each group a row of fp32 values, eight words longer, its maximum and sum.
  const int scratch = groups * (spec.head_dim.vo + 8 + 2) * 4;
  return std::max(query + ring_bytes(spec, tile), scratch) + kKeptBytes;
}

}  // namespace

Result<KernelChoice> decode_kernel(const Spec& spec, int kv) {
  if (std::find(std::begin(kDecodeKvTiles), std::end(kDecodeKvTiles), kv) ==
      std::end(kDecodeKvTiles)) {
    return make_error(Code::kSpecUnsupported, "$.tile.kv",
                      "KV tile " + std::to_string(kv) + " is not supported with query tile 1",
                      "allowed: 16, 32, 64, 128");
  }
  const TileClass tile{kDecodeQueryTile, kv, kTileStages};
  const TargetLimits limits = target_limits(*spec.target);
  const int shared = shared_bytes(spec, tile);
  if (shared > limits.shared_bytes_per_cta) return too_much_shared_memory(spec, tile, shared);
  const int ctas = ctas_per_sm(limits, shared, registers_per_thread(spec), kWarps);
  return KernelChoice{
      "decode_simt", {tile}, 32 * kWarps, shared, std::clamp(ctas, 1, kMostCtasPerSm)};
}

std::optional<KernelChoice> best_decode_kernel(const Spec& spec) {
  std::optional<KernelChoice> best;
  for (const int kv : kDecodeKvTiles) {
    const Result<KernelChoice> choice = decode_kernel(spec, kv);
    if (choice.ok() && (!best || choice->min_ctas_per_sm >= best->min_ctas_per_sm)) best = *choice;
  }
  return best;
}

}  // namespace attnloom
