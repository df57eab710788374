// SPDX-License-Identifier: Apache-2.0
#include "plan/sections.h"

#include <algorithm>
#include <cmath>

#include "base/divide_up.h"

namespace attnloom {

std::pmr::vector<int> sections_of(const Spec& spec, int kv_heads,
                                  std::span<const loom::RequestRow> rows, Memory* memory) {
  const std::int64_t key_bytes =
      std::int64_t{spec.head_dim.qk + spec.head_dim.vo} * bytes_of(spec.dtype.kv) * kv_heads;
  std::pmr::vector<int> sections(memory);
  sections.reserve(rows.size());
  std::int64_t bytes = 0;
  int section = 0;
  for (const loom::RequestRow& row : rows) {
    const std::int64_t more = row.walk_len * key_bytes;
    if (bytes > 0 && bytes + more > kSectionBytes) {
      ++section;
      bytes = 0;
    }
    bytes += more;
    sections.push_back(section);
  }
  return sections;
}

std::int64_t remainder_tiles(std::span<const QueryTile> tiles, int ctas, int kv_heads) {
  constexpr double kWorthACut = 1.01;  // of the last wave's length over its even share
  const auto live = [](const QueryTile& tile) { return tile.live_end - tile.live_begin; };
  const std::int64_t items = std::ssize(tiles) * kv_heads;
  const std::int64_t left = items % ctas;
  if (items < ctas || left == 0) return 0;
  const double waves = static_cast<double>(items) / ctas;
  if (std::ceil(waves) < kWorthACut * waves) return 0;
  const bool equal = std::all_of(tiles.begin(), tiles.end(), [&](const QueryTile& tile) {
    return live(tile) == live(tiles.front()) && tile.kv_len == tiles.front().kv_len;
  });
  // Each that is cut takes a merge, of which a plan has one a CTA.
  const std::int64_t cut = divide_up(left, kv_heads);
  return equal && cut * kv_heads <= ctas ? cut : 0;
}

}  // namespace attnloom
