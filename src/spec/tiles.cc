// SPDX-License-Identifier: Apache-2.0
#include "spec/tiles.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <optional>
#include <span>
#include <utility>

#include "spec/decode_tiles.h"
#include "spec/tile_parts.h"
#include "spec/wgmma_tiles.h"

namespace attnloom {
namespace {

constexpr int kRowThreads = 128;  // of kernels without tiles: eight share a row
constexpr int kFragmentRows =
    16;  // of one mma, in query rows and, as the k of the second product, in KV tokens
constexpr int kMostRowBlocks = 2;    // of one warp
constexpr int kMaxMmaHeadDim = 256;  // accumulators of a row block: vo / 2 registers a thread

// Four warps a CTA, and eight where the accumulators of four do not fit (row blocks * vo / 2
// registers of 255 a thread).
constexpr int kWarpCounts[] = {4, 8};

// How the warps share a class's tile: row blocks first, and warps beyond those split the KV tokens
// and merge their states at the end.
struct WarpLayout {
  int row_blocks;  // of 16 rows, a warp
  int kv_warps;
};
WarpLayout warp_layout(int q, int warps) {
  const int row_warps = std::min(q / kFragmentRows, warps);
  return {q / (kFragmentRows * row_warps), warps / row_warps};
}

// Beyond this the registers are worth more than another CTA.
int most_ctas_per_sm(int q, int warps) {
  return (q <= 32 ? 4 : 2) * 4 / warps;
}

// An estimate: fp32 accumulators O and S (the 16-bit weights take S's place, all but a few),
// queries where they are held (attention_mma.cuh, kHoldQueries), and about 56 for addresses,
// fragments and softmax state. It is there to choose by; a compile that spills steps down.
int registers_per_thread(const Spec& spec, const TileClass& tile, int warps) {
  const WarpLayout layout = warp_layout(tile.q, warps);
  const int o = layout.row_blocks * spec.head_dim.vo / 2;
  // Beyond 128 registers of O the rest no longer fits what is left (head dim 160 came out at a KV
  // tile of 16).
  const int rest = o > 128 ? 112 : 56;
  const int s = layout.row_blocks * (tile.kv / layout.kv_warps) / 2;
  const int held = layout.row_blocks == 1 && spec.head_dim.qk <= 128 ? spec.head_dim.qk / 4 : 0;
  // Bytes to unpack beside two row blocks (tile 128 x 64 of an 8-bit cache spilled 96 bytes).
  const int unpack = bytes_of(spec.dtype.kv) == 1 && layout.row_blocks == 2 ? 8 : 0;
  return o + s + s / 16 + unpack + held + rest;
}

Status check_fit(const Spec& spec, const TileClass& tile, int warps) {
  const int widest = std::max(spec.head_dim.qk, spec.head_dim.vo);
  if (widest > kMaxMmaHeadDim) {
    return make_error(Code::kSpecUnsupported, "$.tile",
                      describe(tile) + ": kernels of query tiles from 16 on hold head dims up to " +
                          std::to_string(kMaxMmaHeadDim) + ", and one here is " +
                          std::to_string(widest),
                      "use query tile 1 or \"auto\"");
  }
  const WarpLayout layout = warp_layout(tile.q, warps);
  if (layout.row_blocks > kMostRowBlocks) {
    return make_error(Code::kSpecUnsupported, "$.tile",
                      describe(tile) + " needs more than " + std::to_string(warps) + " warps",
                      "use a smaller query tile");
  }
  const int kv_step = kFragmentRows * layout.kv_warps;
  if (tile.kv % kv_step != 0) {
    return make_error(Code::kSpecUnsupported, "$.tile",
                      describe(tile) + ": the KV tile of query tile " + std::to_string(tile.q) +
                          " is shared by " + std::to_string(layout.kv_warps) +
                          " warps of 16 tokens each",
                      "use a multiple of " + std::to_string(kv_step));
  }
  const TargetLimits limits = target_limits(*spec.target);
  const int shared = shared_bytes(spec, tile, warps);
  if (shared > limits.shared_bytes_per_cta) return too_much_shared_memory(spec, tile, shared);
  const int registers = registers_per_thread(spec, tile, warps);
  if (registers > limits.registers_per_thread) {
    return make_error(Code::kResourceLimit, "$.tile",
                      describe(tile) + " needs about " + std::to_string(registers) +
                          " registers a thread, " + spec.target->name() + " has " +
                          std::to_string(limits.registers_per_thread),
                      "use a smaller tile or \"auto\"");
  }
  return ok_status();
}

// REQUIRES: check_fit(spec, tile, warps) passed.
int capped_ctas_per_sm(const Spec& spec, const TileClass& tile, int warps) {
  const int ctas = ctas_per_sm(target_limits(*spec.target), shared_bytes(spec, tile, warps),
                               registers_per_thread(spec, tile, warps), warps);
  return std::max(1, std::min(ctas, most_ctas_per_sm(tile.q, warps)));
}

// The KV tile with the most CTAs an SM, and among those the largest: it has the fewest barriers a
// token.
// `spare`: registers to leave free.
std::optional<TileClass> best_class(const Spec& spec, int q, int warps, int spare) {
  std::optional<TileClass> best;
  for (const int kv : kKvTiles) {
    const TileClass tile{q, kv, kTileStages};
    if (!check_fit(spec, tile, warps).ok()) continue;
    if (registers_per_thread(spec, tile, warps) + spare >
        target_limits(*spec.target).registers_per_thread)
      continue;
    if (!best || capped_ctas_per_sm(spec, tile, warps) >= capped_ctas_per_sm(spec, *best, warps))
      best = tile;
  }
  return best;
}

KernelChoice make_choice(const Spec& spec, std::vector<TileClass> classes, int warps) {
  KernelChoice choice{"attention_mma", std::move(classes), 32 * warps, 0, 0};
  int registers = 0;
  int cap = most_ctas_per_sm(choice.classes.front().q, warps);
  for (const TileClass& tile : choice.classes) {
    choice.shared_bytes = std::max(choice.shared_bytes, shared_bytes(spec, tile, warps));
    registers = std::max(registers, registers_per_thread(spec, tile, warps));
    cap = std::min(cap, most_ctas_per_sm(tile.q, warps));
  }
  const int ctas = ctas_per_sm(target_limits(*spec.target), choice.shared_bytes, registers, warps);
  choice.min_ctas_per_sm = std::max(1, std::min(ctas, cap));
  return choice;
}

// `least`: the first that is allowed.
std::string query_tiles(int least) {
  std::string text = least == kDecodeQueryTile ? std::to_string(least) : "";
  for (const int q : kQueryTiles) text += (text.empty() ? "" : ", ") + std::to_string(q);
  return text;
}

// Of attention_mma.
Status check_query_tile(int q, std::string path, int least) {
  if (std::find(std::begin(kQueryTiles), std::end(kQueryTiles), q) != std::end(kQueryTiles))
    return ok_status();
  return make_error(Code::kSpecUnsupported, std::move(path),
                    "query tile " + std::to_string(q) + " is not supported by this version",
                    "allowed: " + query_tiles(least));
}

// The best class of each of `query_tiles` in one kernel; nothing where one of them has none.
std::optional<KernelChoice> best_choice(const Spec& spec, std::span<const int> query_tiles) {
  // A kernel that also holds another class needs a few more (16 x 64 with 128 x 64 spilled 20 bytes
  // at head dim 128).
  const int spare = query_tiles.size() > 1 ? 8 : 0;
  for (const int warps : kWarpCounts) {
    std::vector<TileClass> classes;
    for (const int q : query_tiles) {
      const std::optional<TileClass> best = best_class(spec, q, warps, spare);
      if (best) classes.push_back(*best);
    }
    if (classes.size() == query_tiles.size()) return make_choice(spec, std::move(classes), warps);
  }
  return std::nullopt;
}

// Measured on one H200: with head dim 64 it lost 6 %, with a window (of whose tiles it sees more
// that are cut) 4 %, without softmax (nothing but functors between the products) 6 %.
bool pays_long_tile(const Spec& spec) {
  return spec.head_dim.vo >= 96 && spec.variant.softmax &&
         spec.variant.mask.window_left == std::optional<int>(-1);
}

// REQUIRES: kernels holds single-class kernels of attention_mma.
void add_joint_kernel(const Spec& spec, std::vector<KernelChoice>& kernels) {
  // The joint kernel holds the ends, the class for decode and the one for long prefills, or the
  // next smaller prefill class where those need different numbers of warps.
  for (std::size_t last = kernels.size(); last-- > 1;) {
    if (kernels[last].classes[0].q >= kLongQueryTile) continue;
    const int ends[] = {kernels.front().classes[0].q, kernels[last].classes[0].q};
    if (const std::optional<KernelChoice> joint = best_choice(spec, ends)) {
      kernels.push_back(*joint);
      return;
    }
  }
}

Result<std::vector<KernelChoice>> auto_set(const Spec& spec) {
  std::vector<KernelChoice> kernels;
  const std::optional<KernelChoice> warpgroups = best_wgmma_kernel(spec);
  for (const int q : kQueryTiles) {
    if (q >= kLongQueryTile && (warpgroups || !pays_long_tile(spec))) continue;
    if (const std::optional<KernelChoice> choice = best_choice(spec, {&q, 1}))
      kernels.push_back(*choice);
  }
  add_joint_kernel(spec, kernels);
  // plan() takes query tile 1 for requests of one packed row, which a group of several heads never
  // has, and where there is nothing else.
  if (spec.group_size == 1 || kernels.empty()) {
    if (std::optional<KernelChoice> choice = best_decode_kernel(spec))
      kernels.insert(kernels.begin(), *std::move(choice));
  }
  if (warpgroups) kernels.push_back(*warpgroups);
  if (kernels.empty()) {
    return make_error(Code::kResourceLimit, "$.tile",
                      "no tile fits " + spec.target->name() + " at head_dim " +
                          std::to_string(spec.head_dim.qk) + ", " +
                          std::to_string(spec.head_dim.vo),
                      "");
  }
  return kernels;
}

Result<std::vector<KernelChoice>> fixed_set(const Spec& spec, const FixedTile& fixed) {
  if (fixed.family == TileFamily::kWgmma) {
    ATTNLOOM_TRY(KernelChoice choice, wgmma_kernel(spec, fixed.q, fixed.kv));
    return std::vector<KernelChoice>{std::move(choice)};
  }
  if (fixed.q == kDecodeQueryTile) {
    ATTNLOOM_TRY(KernelChoice choice, decode_kernel(spec, fixed.kv));
    return std::vector<KernelChoice>{std::move(choice)};
  }
  ATTNLOOM_CHECK(check_query_tile(fixed.q, "$.tile.q", kDecodeQueryTile));
  if (std::find(std::begin(kKvTiles), std::end(kKvTiles), fixed.kv) == std::end(kKvTiles)) {
    return make_error(Code::kSpecUnsupported, "$.tile.kv",
                      "KV tile " + std::to_string(fixed.kv) + " is not supported by this version",
                      "allowed: 32, 64, 128");
  }
  const TileClass tile{fixed.q, fixed.kv, kTileStages};
  for (const int warps : kWarpCounts) {
    if (check_fit(spec, tile, warps).ok())
      return std::vector<KernelChoice>{make_choice(spec, {tile}, warps)};
  }
  return check_fit(spec, tile, kWarpCounts[0]);
}

Result<std::vector<KernelChoice>> joint_set(const Spec& spec, const JointTile& joint) {
  const bool ascending =
      std::is_sorted(joint.classes.begin(), joint.classes.end(), std::less_equal<>());
  if (joint.classes.size() < 2 || !ascending) {
    return make_error(
        Code::kSpecUnsupported, "$.tile.classes",
        "a joint kernel has two or more different query tiles, ascending",
        "use {\"q\", \"kv\"} for a single one; allowed: " + query_tiles(kQueryTiles[0]));
  }
  for (std::size_t i = 0; i < joint.classes.size(); ++i)
    ATTNLOOM_CHECK(check_query_tile(joint.classes[i], "$.tile.classes[" + std::to_string(i) + "]",
                                    kQueryTiles[0]));
  if (const std::optional<KernelChoice> choice = best_choice(spec, joint.classes))
    return std::vector<KernelChoice>{*choice};
  // The smallest KV tile that a class allows says what is missing.
  for (const int q : joint.classes) {
    const int least_kv = kFragmentRows * std::max(2, warp_layout(q, kWarpCounts[1]).kv_warps);
    ATTNLOOM_CHECK(check_fit(spec, {q, least_kv, kTileStages}, kWarpCounts[1]));
  }
  return make_error(Code::kResourceLimit, "$.tile.classes",
                    "no number of warps serves all of these classes", "leave one out");
}

}  // namespace

int shared_bytes(const Spec& spec, const TileClass& tile, int warps) {
  const int query = tile.q * row_bytes(spec.head_dim.qk);
  // The epilogue: 16 fp32 rows a warp, eight words longer than a row of values so that neighbouring
  // rows lie in different banks, and where warps share rows the maximum and sum of each.
  const int row_words = spec.head_dim.vo + 8 + (warp_layout(tile.q, warps).kv_warps == 1 ? 0 : 2);
  return std::max(query + ring_bytes(spec, tile), warps * kFragmentRows * row_words * 4) +
         kKeptBytes;
}

Result<std::vector<KernelChoice>> kernel_set(const Spec& spec) {
  if (spec.kernel != KernelKind::kAttention)
    return std::vector<KernelChoice>{{std::string(json_name(spec.kernel)), {}, kRowThreads, 0, 1}};
  if (const auto* fixed = std::get_if<FixedTile>(&spec.tile)) return fixed_set(spec, *fixed);
  if (const auto* joint = std::get_if<JointTile>(&spec.tile)) return joint_set(spec, *joint);
  return auto_set(spec);
}

std::span<const KernelChoice> warp_kernels(std::span<const KernelChoice> set) {
  const bool last = set.size() > 1 && set.back().family == kWgmmaFamily;
  return set.first(set.size() - (last ? 1 : 0));
}

Result<KernelChoice> step_down(const Spec& spec, const KernelChoice& choice) {
  if (choice.family == kWgmmaFamily) return smaller_wgmma_kernel(spec, choice);
  const bool decodes = !choice.classes.empty() && choice.classes[0].q == kDecodeQueryTile;
  // A smaller KV tile of decode_simt frees no registers (it holds one row), fewer CTAs do.
  if (decodes && choice.min_ctas_per_sm > 1) {
    KernelChoice fewer = choice;
    --fewer.min_ctas_per_sm;
    return fewer;
  }
  if (!choice.classes.empty() && !decodes) {
    std::vector<TileClass> classes = choice.classes;
    TileClass& largest = classes.back();
    // 16 is no tile to choose (a barrier every 16 tokens), but better than spilling.
    for (const int kv : {64, 32, 16}) {
      if (kv >= largest.kv) continue;
      largest.kv = kv;
      if (!check_fit(spec, largest, choice.threads / 32).ok()) continue;
      KernelChoice smaller = make_choice(spec, classes, choice.threads / 32);
      // Another CTA an SM would take back the registers that the smaller tile is to free.
      smaller.min_ctas_per_sm = std::min(smaller.min_ctas_per_sm, choice.min_ctas_per_sm);
      return smaller;
    }
  }
  return make_error(Code::kResourceLimit, "$.tile", "there is no smaller KV tile to step down to",
                    "use a smaller query tile");
}

}  // namespace attnloom
