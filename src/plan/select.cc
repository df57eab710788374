// SPDX-License-Identifier: Apache-2.0
#include "plan/select.h"

#include <algorithm>

#include "plan/invariant.h"
#include "plan/least_chunk.h"

namespace attnloom {
namespace {

// The smallest class that holds `rows` packed rows, else the largest. REQUIRES: classes ascending.
int class_for(std::span<const int> query_tiles, std::int64_t rows) {
  const auto found = std::lower_bound(query_tiles.begin(), query_tiles.end(), rows);
  return static_cast<int>(
      std::min<std::ptrdiff_t>(found - query_tiles.begin(), std::ssize(query_tiles) - 1));
}

std::pmr::vector<int> query_tiles_of(const KernelChoice& kernel, Memory* memory) {
  std::pmr::vector<int> tiles(memory);
  for (const TileClass& tile : kernel.classes) tiles.push_back(tile.q);
  return tiles;
}

// One kernel for all batches, and each entry's class by its own rows.
Selection select_invariant(const Spec& spec, std::span<const KernelChoice> kernels,
                           std::span<const loom::RequestRow> rows, Memory* memory) {
  Selection selection{.tile_class = std::pmr::vector<int>(memory)};
  selection.tile_class.reserve(rows.size());
  selection.batch_invariant = true;
  selection.kernel = invariant_kernel(kernels);
  const std::pmr::vector<int> classes = query_tiles_of(kernels[selection.kernel], memory);
  for (const loom::RequestRow& row : rows) {
    const std::int64_t packed = packed_rows(spec, row);
    selection.tile_class.push_back(packed == 0 ? 0 : class_for(classes, packed));
  }
  return selection;
}

// Whether the set's kernel of attention_wgmma serves the batch. On an H200 (docs/decisions/029) it
// did on every batch with a request of more rows than the class for decode, so there is no
// crossover to compute. Shared prefixes it does not know.
bool takes_warpgroups(const Spec& spec, std::span<const loom::RequestRow> rows) {
  bool long_rows = false;
  for (const loom::RequestRow& row : rows) {
    if (row.member_count > 0) return false;
    long_rows = long_rows || packed_rows(spec, row) > kMostDecodeRows;
  }
  return long_rows;
}

}  // namespace

int fixed_kernel(const Spec& spec, std::span<const KernelChoice> set, const PlanLimits& limits) {
  const std::span<const KernelChoice> kernels = warp_kernels(set);
  if (limits.batch_invariant || limits.max_qo_tokens > limits.max_batch)
    return invariant_kernel(kernels);
  for (int k = 0; k < std::ssize(kernels); ++k) {
    if (kernels[k].classes.size() == 1 && kernels[k].classes[0].q >= spec.group_size) return k;
  }
  return invariant_kernel(kernels);
}

Selection select_kernel(const Spec& spec, std::span<const KernelChoice> set,
                        std::span<const loom::RequestRow> rows, bool batch_invariant,
                        Memory* memory) {
  const std::span<const KernelChoice> kernels = warp_kernels(set);
  if (batch_invariant) return select_invariant(spec, kernels, rows, memory);
  if (kernels.size() < set.size() && takes_warpgroups(spec, rows)) {
    Selection selection{.tile_class = std::pmr::vector<int>(memory)};
    selection.kernel = static_cast<int>(kernels.size());
    selection.tile_class.assign(rows.size(), 0);
    return selection;
  }
  std::pmr::vector<int> singles(
      memory);  // query tiles of the single-class kernels, which lead the set in ascending order
  int joint = -1;
  for (int k = 0; k < std::ssize(kernels); ++k) {
    if (kernels[k].classes.size() == 1) singles.push_back(kernels[k].classes[0].q);
    if (kernels[k].classes.size() > 1) joint = k;
  }
  const auto is_long = [&](const loom::RequestRow& row) {
    const std::int64_t packed = packed_rows(spec, row);
    return packed == 0 || packed >= kLongRows;
  };
  if (singles.size() > 1 && singles.back() == kLongQueryTile &&
      !std::all_of(rows.begin(), rows.end(), is_long))
    singles.pop_back();
  Selection selection{.tile_class = std::pmr::vector<int>(memory)};
  selection.tile_class.assign(rows.size(), 0);
  int lowest = static_cast<int>(singles.size());
  int highest = -1;
  for (const loom::RequestRow& row : rows) {
    const std::int64_t packed = packed_rows(spec, row);
    if (packed == 0 || singles.empty()) continue;
    const int chosen = class_for(singles, packed);
    lowest = std::min(lowest, chosen);
    highest = std::max(highest, chosen);
  }
  // Query tile 1 is for batches that have nothing else; a batch that mixes it with the next class
  // needs no joint kernel.
  if (lowest < highest && joint >= 0)
    lowest = std::max(lowest, class_for(singles, kernels[joint].classes[0].q));
  if (!singles.empty() && (highest <= lowest || joint < 0)) {
    selection.kernel = std::max(highest, 0);
    return selection;
  }
  selection.kernel = joint;
  const std::pmr::vector<int> classes = query_tiles_of(kernels[joint], memory);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    std::int64_t packed = packed_rows(spec, rows[r]);
    if (packed == 0) continue;
    // Through the single-class table first: the same request has the same class in every batch,
    // mapped up.
    if (!singles.empty()) packed = singles[class_for(singles, packed)];
    selection.tile_class[r] = class_for(classes, packed);
  }
  return selection;
}

}  // namespace attnloom
