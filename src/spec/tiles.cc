// SPDX-License-Identifier: Apache-2.0
#include "spec/tiles.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <optional>
#include <span>
#include <utility>

namespace attnloom {
namespace {

constexpr int kThreads = 128;  // four warps in every class
constexpr int kWarps = kThreads / 32;
constexpr int kStages = 2;
constexpr int kFragmentRows =
    16;  // of one mma, in query rows and, as the k of the second product, in KV tokens
constexpr int kReservedBytesPerCta = 1024;  // of shared memory, by the driver (sm_80 and later)
constexpr int kElementBytes = 2;

// How the four warps share a class's tile. Class 16 has one row block, so its warps split the KV
// tokens instead and merge their states at the end.
struct WarpLayout {
  int row_blocks;  // of 16 rows, a warp
  int kv_warps;
  int most_ctas_per_sm;  // beyond this the registers are worth more than another CTA
};
WarpLayout warp_layout(int q) {
  if (q == 16) return {1, kWarps, 4};
  return {q / (kFragmentRows * kWarps), 1, 2};
}

// An estimate: fp32 accumulators O and S, P in 16 bits (half of S), and about 56 for addresses,
// fragments and softmax state. It is there to choose by; with the CTAs that follow from it no tile
// of "auto" spills (NVRTC 13.0, sm_80 and sm_90a, head dims 64 and 128), and a compile that does
// spill steps down.
int registers_per_thread(const Spec& spec, const TileClass& tile) {
  constexpr int kRest = 56;
  const WarpLayout layout = warp_layout(tile.q);
  const int o = layout.row_blocks * spec.head_dim.vo / 2;
  const int s = layout.row_blocks * (tile.kv / layout.kv_warps) / 2;
  return o + s + s / 2 + kRest;
}

int ctas_per_sm(const TargetLimits& limits, int shared, int registers) {
  return std::min(limits.shared_bytes_per_sm / (shared + kReservedBytesPerCta),
                  limits.registers_per_sm / (kThreads * registers));
}

std::string describe(const TileClass& tile) {
  return "tile {\"q\": " + std::to_string(tile.q) + ", \"kv\": " + std::to_string(tile.kv) + "}";
}

Status check_fit(const Spec& spec, const TileClass& tile) {
  const WarpLayout layout = warp_layout(tile.q);
  const int kv_step = kFragmentRows * layout.kv_warps;
  if (tile.kv % kv_step != 0) {
    return make_error(Code::kSpecUnsupported, "$.tile",
                      describe(tile) + ": the KV tile of query tile " + std::to_string(tile.q) +
                          " is shared by " + std::to_string(layout.kv_warps) +
                          " warps of 16 tokens each",
                      "use a multiple of " + std::to_string(kv_step));
  }
  const TargetLimits limits = target_limits(*spec.target);
  const int shared = shared_bytes(spec, tile);
  if (shared > limits.shared_bytes_per_cta) {
    return make_error(Code::kResourceLimit, "$.tile",
                      describe(tile) + " needs " + std::to_string(shared) +
                          " bytes of shared memory, " + spec.target->name() + " has " +
                          std::to_string(limits.shared_bytes_per_cta),
                      "use a smaller tile or \"auto\"");
  }
  const int registers = registers_per_thread(spec, tile);
  if (registers > limits.registers_per_thread) {
    return make_error(Code::kResourceLimit, "$.tile",
                      describe(tile) + " needs about " + std::to_string(registers) +
                          " registers a thread, " + spec.target->name() + " has " +
                          std::to_string(limits.registers_per_thread),
                      "use a smaller tile or \"auto\"");
  }
  return ok_status();
}

// REQUIRES: check_fit(spec, tile) passed.
int capped_ctas_per_sm(const Spec& spec, const TileClass& tile) {
  const int ctas = ctas_per_sm(target_limits(*spec.target), shared_bytes(spec, tile),
                               registers_per_thread(spec, tile));
  return std::max(1, std::min(ctas, warp_layout(tile.q).most_ctas_per_sm));
}

// The KV tile with the most CTAs an SM, and among those the largest: it has the fewest barriers a
// token.
std::optional<TileClass> best_class(const Spec& spec, int q) {
  std::optional<TileClass> best;
  for (const int kv : kKvTiles) {
    const TileClass tile{q, kv, kStages};
    if (!check_fit(spec, tile).ok()) continue;
    if (!best || capped_ctas_per_sm(spec, tile) >= capped_ctas_per_sm(spec, *best)) best = tile;
  }
  return best;
}

KernelChoice make_choice(const Spec& spec, std::vector<TileClass> classes) {
  KernelChoice choice{"attention_mma", std::move(classes), kThreads, 0, 0};
  int registers = 0;
  int cap = kWarps;
  for (const TileClass& tile : choice.classes) {
    choice.shared_bytes = std::max(choice.shared_bytes, shared_bytes(spec, tile));
    registers = std::max(registers, registers_per_thread(spec, tile));
    cap = std::min(cap, warp_layout(tile.q).most_ctas_per_sm);
  }
  const int ctas = ctas_per_sm(target_limits(*spec.target), choice.shared_bytes, registers);
  choice.min_ctas_per_sm = std::max(1, std::min(ctas, cap));
  return choice;
}

std::string query_tiles() {
  std::string text;
  for (const int q : kQueryTiles) text += (text.empty() ? "" : ", ") + std::to_string(q);
  return text;
}

Status check_query_tile(int q, std::string path) {
  if (std::find(std::begin(kQueryTiles), std::end(kQueryTiles), q) != std::end(kQueryTiles))
    return ok_status();
  return make_error(Code::kSpecUnsupported, std::move(path),
                    "query tile " + std::to_string(q) + " is not supported by this version",
                    "allowed: " + query_tiles());
}

Result<std::vector<KernelChoice>> auto_set(const Spec& spec) {
  std::vector<KernelChoice> kernels;
  std::vector<TileClass> joint;
  for (const int q : kQueryTiles) {
    const std::optional<TileClass> best = best_class(spec, q);
    if (!best) continue;
    kernels.push_back(make_choice(spec, {*best}));
    // The joint kernel holds the ends: the one for decode and the one for long prefills.
    if (joint.size() == 2) joint.pop_back();
    joint.push_back(*best);
  }
  if (kernels.empty()) {
    return make_error(Code::kResourceLimit, "$.tile",
                      "no tile fits " + spec.target->name() + " at head_dim " +
                          std::to_string(spec.head_dim.qk) + ", " +
                          std::to_string(spec.head_dim.vo),
                      "");
  }
  if (joint.size() == 2) kernels.push_back(make_choice(spec, joint));
  return kernels;
}

Result<std::vector<KernelChoice>> fixed_set(const Spec& spec, const FixedTile& fixed) {
  ATTNLOOM_CHECK(check_query_tile(fixed.q, "$.tile.q"));
  if (std::find(std::begin(kKvTiles), std::end(kKvTiles), fixed.kv) == std::end(kKvTiles)) {
    return make_error(Code::kSpecUnsupported, "$.tile.kv",
                      "KV tile " + std::to_string(fixed.kv) + " is not supported by this version",
                      "allowed: 32, 64, 128");
  }
  const TileClass tile{fixed.q, fixed.kv, kStages};
  ATTNLOOM_CHECK(check_fit(spec, tile));
  return std::vector<KernelChoice>{make_choice(spec, {tile})};
}

Result<std::vector<KernelChoice>> joint_set(const Spec& spec, const JointTile& joint) {
  const bool ascending =
      std::is_sorted(joint.classes.begin(), joint.classes.end(), std::less_equal<>());
  if (joint.classes.size() < 2 || !ascending) {
    return make_error(Code::kSpecUnsupported, "$.tile.classes",
                      "a joint kernel has two or more different query tiles, ascending",
                      "use {\"q\", \"kv\"} for a single one; allowed: " + query_tiles());
  }
  std::vector<TileClass> classes;
  for (std::size_t i = 0; i < joint.classes.size(); ++i) {
    const int q = joint.classes[i];
    ATTNLOOM_CHECK(check_query_tile(q, "$.tile.classes[" + std::to_string(i) + "]"));
    const std::optional<TileClass> best = best_class(spec, q);
    // The smallest KV tile that the class allows says what is missing.
    if (!best)
      return check_fit(spec, {q, kFragmentRows * std::max(2, warp_layout(q).kv_warps), kStages});
    classes.push_back(*best);
  }
  return std::vector<KernelChoice>{make_choice(spec, std::move(classes))};
}

}  // namespace

int shared_bytes(const Spec& spec, const TileClass& tile) {
  const int query = tile.q * spec.head_dim.qk * kElementBytes;
  const int ring = tile.stages * tile.kv * (spec.head_dim.qk + spec.head_dim.vo) * kElementBytes;
  // The epilogue: 16 fp32 rows a warp, eight words longer than a row of values so that neighbouring
  // rows lie in different banks, and where warps share rows the maximum and sum of each.
  const int row_words = spec.head_dim.vo + 8 + (warp_layout(tile.q).kv_warps == 1 ? 0 : 2);
  return std::max(query + ring, kWarps * kFragmentRows * row_words * 4);
}

Result<std::vector<KernelChoice>> kernel_set(const Spec& spec) {
  if (spec.kernel == KernelKind::kMerge)
    return std::vector<KernelChoice>{{"merge", {}, kThreads, 0, 1}};
  if (const auto* fixed = std::get_if<FixedTile>(&spec.tile)) return fixed_set(spec, *fixed);
  if (const auto* joint = std::get_if<JointTile>(&spec.tile)) return joint_set(spec, *joint);
  return auto_set(spec);
}

Result<KernelChoice> step_down(const Spec& spec, const KernelChoice& choice) {
  if (!choice.classes.empty()) {
    std::vector<TileClass> classes = choice.classes;
    TileClass& largest = classes.back();
    // 16 is no tile to choose (a barrier every 16 tokens), but better than spilling.
    for (const int kv : {64, 32, 16}) {
      if (kv >= largest.kv) continue;
      largest.kv = kv;
      if (!check_fit(spec, largest).ok()) continue;
      KernelChoice smaller = make_choice(spec, classes);
      // Another CTA an SM would take back the registers that the smaller tile is to free.
      smaller.min_ctas_per_sm = std::min(smaller.min_ctas_per_sm, choice.min_ctas_per_sm);
      return smaller;
    }
  }
  return make_error(Code::kResourceLimit, "$.tile", "there is no smaller KV tile to step down to",
                    "use a smaller query tile");
}

}  // namespace attnloom
