// SPDX-License-Identifier: Apache-2.0
// Which prefixes are worth an item of their own: bytes saved against bytes paid, on one KV head.
// Pure; thread-safe.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <span>
#include <vector>

#include "plan/prefix_tree.h"
#include "plan/scratch.h"

namespace attnloom {

// A prefix of t tokens under m readers, m counting each tile of query rows that would walk it, is
// read `tiles` times instead of m times. For that each of its rows is read as a query once more and
// leaves a partial state, which the merge reads back; so does the suffix of a row that had none.
struct ShareRule {
  std::int64_t key_bytes = 0;    // of a token
  std::int64_t query_bytes = 0;  // of a row
  std::int64_t state_bytes = 0;  // of a row's partial state, written and read back

  explicit ShareRule(const Spec& spec);

  // An item is worth its overhead as of the shortest chunk (least_chunk.h): what a CTA does beside
  // streaming keys, as tokens that it could have streamed meanwhile.
  static constexpr std::int64_t kItemTokens = 128;

  std::int64_t saved(std::int64_t readers, std::int64_t tiles, std::int64_t tokens) const {
    return (readers - tiles) * tokens * key_bytes;
  }
  // `fresh`: those of `rows` that no other shared prefix has yet.
  std::int64_t paid(std::int64_t rows, std::int64_t fresh, std::int64_t tiles) const {
    return rows * (query_bytes + state_bytes) + fresh * state_bytes +
           tiles * kItemTokens * key_bytes;
  }
};

// One flag a node of the forest. `rows`: packed query rows of each request; `tile_rows`: of the
// tiles that would walk a prefix. The pages of a node that is left out go to the nodes right below
// it and to its own members, so nodes are asked from the leaves up: what a node saves is counted
// against the readers that it would otherwise leave to those. O(nodes).
std::pmr::vector<bool> worth_sharing(const ShareRule& rule, const PrefixForest& forest,
                                     std::span<const std::int64_t> rows, std::int64_t tile_rows,
                                     int page_size, Memory* memory = heap());

}  // namespace attnloom
