// SPDX-License-Identifier: Apache-2.0
#include "plan/share_rule.h"

namespace attnloom {

ShareRule::ShareRule(const Spec& spec)
    : key_bytes(std::int64_t{spec.head_dim.qk + spec.head_dim.vo} * bytes_of(spec.dtype.kv)),
      query_bytes(std::int64_t{spec.head_dim.qk} * bytes_of(spec.dtype.q)),
      state_bytes(2 * std::int64_t{spec.head_dim.vo + 1} * std::int64_t{sizeof(float)}) {}

std::pmr::vector<bool> worth_sharing(const ShareRule& rule, const PrefixForest& forest,
                                     std::span<const std::int64_t> rows, std::int64_t tile_rows,
                                     int page_size, Memory* memory) {
  struct Below {
    std::int64_t readers = 0;  // of a token that the node leaves to those below it
    std::int64_t rows = 0;
    std::int64_t fresh = 0;  // rows that no node below shares
  };
  std::pmr::vector<std::int64_t> rows_before(memory);  // in the forest's order
  rows_before.reserve(forest.order.size() + 1);
  rows_before.push_back(0);
  for (const int request : forest.order) rows_before.push_back(rows_before.back() + rows[request]);
  std::pmr::vector<Below> below(forest.nodes.size(), memory);
  for (std::size_t n = 0; n < forest.nodes.size(); ++n) {
    const PrefixNode& node = forest.nodes[n];
    const std::int64_t of_node = rows_before[node.member_end] - rows_before[node.first_member];
    below[n] = {node.member_end - node.first_member, of_node, of_node};
  }
  std::pmr::vector<bool> worth(forest.nodes.size(), false, memory);
  for (std::size_t n = forest.nodes.size(); n-- > 0;) {
    const PrefixNode& node = forest.nodes[n];
    const std::int64_t tiles = (below[n].rows + tile_rows - 1) / tile_rows;
    const std::int64_t tokens = std::int64_t{node.end - node.begin} * page_size;
    worth[n] = rule.saved(below[n].readers, tiles, tokens) >
               rule.paid(below[n].rows, below[n].fresh, tiles);
    if (node.parent < 0) continue;
    Below& parent = below[node.parent];
    const std::int64_t members = node.member_end - node.first_member;
    parent.readers += (worth[n] ? tiles : below[n].readers) - members;
    parent.fresh -= worth[n] ? below[n].rows : below[n].rows - below[n].fresh;
  }
  return worth;
}

}  // namespace attnloom
