// SPDX-License-Identifier: Apache-2.0
#include "spec/wgmma_tiles.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <string>

#include "spec/tile_parts.h"

namespace attnloom {
namespace {

constexpr int kGroupRows = 64;        // of one warpgroup
constexpr int kGroupThreads = 128;    // of a warpgroup
constexpr int kWideValuesTile = 128;  // beyond it a thread has 160 registers instead of 232
constexpr int kNarrowValues = 64;
constexpr int kWideValues = 256;
constexpr int kKeyDims[] = {64, 96, 128, 192, 256};
constexpr int kValueDims[] = {64, 96, 128, 256};
constexpr int kSlabColumns = 64;  // of 16 bits, as wide as the swizzle
constexpr int kKeptSlots = 4;     // items in flight (loom/ring_sm90.cuh)
constexpr int kTileSlots = 4;     // tiles likewise
constexpr int kNextTileBytes = 8;
constexpr int kScratchBytes = 16;
constexpr int kBarrierBytes = 8;
constexpr int kStageBarriers = 8;
constexpr int kOtherBarriers = 8 + 2 * kKeptSlots + 2 * kTileSlots;

Status refuse(std::string what, std::string remedy) {
  return make_error(Code::kSpecUnsupported, "$.tile.family",
                    std::string(kWgmmaFamily) + " of this version does not do " + std::move(what),
                    std::move(remedy));
}

template <class List>
bool holds(const List& list, int wanted) {
  return std::find(std::begin(list), std::end(list), wanted) != std::end(list);
}

// A map copies 128 bytes of a row at a time, and products accumulate values of these widths.
Status check_head_dims(const HeadDim& dims, int q) {
  if (q > kWideValuesTile && dims.vo > kNarrowValues) {
    return make_error(Code::kResourceLimit, "$.tile.q",
                      "query tile " + std::to_string(q) + " of " + kWgmmaFamily +
                          " has registers for head_dim.vo " + std::to_string(kNarrowValues),
                      "use query tile " + std::to_string(kWideValuesTile));
  }
  if (holds(kKeyDims, dims.qk) && holds(kValueDims, dims.vo)) return ok_status();
  return refuse("head_dim " + std::to_string(dims.qk) + ", " + std::to_string(dims.vo),
                "allowed: qk 64, 96, 128, 192 or 256, vo 64, 96, 128 or 256");
}

bool has_row_functors(const Variant& variant) {
  return !variant.query_transform.empty() || !variant.key_transform.empty() ||
         !variant.value_transform.empty();
}

// Row functors are run by a warpgroup of their own; beside it a thread has 128 registers at its
// launch, and ptxas wants 158 for a product of 256 columns (C7602) and serialises two of 128
// (C7512).
Status check_row_functors(const Spec& spec, int q) {
  if (!has_row_functors(spec.variant)) return ok_status();
  if (spec.head_dim.vo >= kWideValues)
    return refuse("row functors at head_dim.vo " + std::to_string(spec.head_dim.vo),
                  "use \"auto\"");
  if (q <= kWideValuesTile) return ok_status();
  return make_error(Code::kResourceLimit, "$.tile.q",
                    "query tile " + std::to_string(q) + " of " + kWgmmaFamily +
                        " leaves no registers for row functors",
                    "use query tile " + std::to_string(kWideValuesTile));
}

Status check_fits(const Spec& spec, int q) {
  if (*spec.target != Target{90, 'a'}) {
    return make_error(
        Code::kSpecUnsupported, "$.tile.family",
        std::string(kWgmmaFamily) + " needs sm_90a, and the target is " + spec.target->name(),
        "use \"auto\"");
  }
  if (bytes_of(spec.dtype.kv) != 2)
    return refuse("dtype.kv " + std::string(json_name(spec.dtype.kv)), "use \"auto\"");
  ATTNLOOM_CHECK(check_head_dims(spec.head_dim, q));
  ATTNLOOM_CHECK(check_row_functors(spec, q));
  if (spec.layout.kv != KvLayout::kBsr) return ok_status();
  if (has_row_functors(spec.variant))
    return refuse("row functors with layout \"bsr\"", "use \"auto\"");
  if (!spec.variant.tile_mask.empty())
    return refuse("variant.tile_mask with layout \"bsr\"", "use \"auto\"");
  return ok_status();
}

// Rows are whole slabs (SlabTile in loom/warpgroup.cuh).
int slab_bytes(int columns) {
  return (columns + kSlabColumns - 1) / kSlabColumns * kSlabColumns * 2;
}

// MappedRing (loom/ring_sm90.cuh) counts the same.
int bytes_with(const Spec& spec, const TileClass& tile, int query_tiles) {
  const int key = slab_bytes(spec.head_dim.qk);
  const int stage = tile.kv * (key + slab_bytes(spec.head_dim.vo)) + beside_bytes(spec, tile) +
                    kBarrierBytes * kStageBarriers;
  return query_tiles * tile.q * key + tile.stages * stage + kBarrierBytes * kOtherBarriers +
         kKeptSlots * kKeptBytes + kTileSlots * kNextTileBytes + kScratchBytes;
}

// Of values of 256 columns, 80 is what two stages have room for.
std::span<const int> kv_tiles(const Spec& spec) {
  if (spec.head_dim.vo >= kWideValues) return kWgmmaWideKvTiles;
  return kWgmmaKvTiles;
}

Status check_one_of(const char* path, const char* what, int given, std::span<const int> tiles) {
  std::string allowed;
  for (const int tile : tiles) {
    if (tile == given) return ok_status();
    allowed += (allowed.empty() ? "" : ", ") + std::to_string(tile);
  }
  return make_error(Code::kSpecUnsupported, path,
                    std::string(what) + " " + std::to_string(given) + " is not supported by " +
                        kWgmmaFamily + " of this version",
                    "allowed: " + allowed);
}

}  // namespace

Result<KernelChoice> wgmma_kernel(const Spec& spec, int q, int kv) {
  ATTNLOOM_CHECK(check_one_of("$.tile.q", "query tile", q, kWgmmaQueryTiles));
  ATTNLOOM_CHECK(check_one_of("$.tile.kv", "KV tile", kv, kv_tiles(spec)));
  ATTNLOOM_CHECK(check_fits(spec, q));
  const TileClass tile{q, kv, kTileStages};
  const int most = target_limits(*spec.target).shared_bytes_per_cta;
  int shared = bytes_with(spec, tile, 2);
  if (shared > most) shared = bytes_with(spec, tile, 1);
  if (shared > most) return too_much_shared_memory(spec, tile, shared);
  const int groups = q / kGroupRows + 1 + (has_row_functors(spec.variant) ? 1 : 0);
  return KernelChoice{kWgmmaFamily, {tile}, groups * kGroupThreads, shared, 1};
}

std::optional<KernelChoice> best_wgmma_kernel(const Spec& spec) {
  // Gathered in blocks of 16 keys it reached half of what boxes do, less than attention_mma.
  if (spec.layout.kv == KvLayout::kBsr) return std::nullopt;
  const std::span<const int> tiles = kv_tiles(spec);
  for (auto q = std::rbegin(kWgmmaQueryTiles); q != std::rend(kWgmmaQueryTiles); ++q) {
    for (auto kv = tiles.rbegin(); kv != tiles.rend(); ++kv) {
      Result<KernelChoice> kernel = wgmma_kernel(spec, *q, *kv);
      if (kernel.ok()) return *std::move(kernel);
    }
  }
  return std::nullopt;
}

Result<KernelChoice> smaller_wgmma_kernel(const Spec& spec, const KernelChoice& choice) {
  const TileClass& tile = choice.classes.front();
  const std::span<const int> tiles = kv_tiles(spec);
  for (auto kv = tiles.rbegin(); kv != tiles.rend(); ++kv) {
    if (*kv >= tile.kv) continue;
    Result<KernelChoice> smaller = wgmma_kernel(spec, tile.q, *kv);
    if (smaller.ok()) return smaller;
  }
  return make_error(Code::kResourceLimit, "$.tile", "there is no smaller KV tile to step down to",
                    "use attention_mma");
}

}  // namespace attnloom
