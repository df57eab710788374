// SPDX-License-Identifier: Apache-2.0
// The prefixes that page tables share: the radix tree of their page rows, without what belongs to
// one request alone. Requests may come in any order and the tree may have any shape. Pure;
// deterministic; thread-safe.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <span>
#include <vector>

#include "plan/scratch.h"
#include "plan/workload.h"

namespace attnloom {

// Pages [begin, end) that the rows of all its members list at these places.
struct PrefixNode {
  int parent = -1;  // index of the node whose pages come before; -1: none does
  int begin = 0;
  int end = 0;
  int first_member = 0;  // in PrefixForest::order
  int member_end = 0;
};

struct PrefixForest {
  std::pmr::vector<PrefixNode> nodes;  // at least two members each; parents before children
  std::pmr::vector<int> order;  // requests, the members of a node side by side; empty without nodes
  std::int64_t compared_pages = 0;  // page numbers read while looking; at most two an index
};

inline PrefixForest no_prefixes(Memory* memory) {
  return {.nodes = std::pmr::vector<PrefixNode>(memory), .order = std::pmr::vector<int>(memory)};
}

// The most pages of a request that others may read with it: whole ones, and only keys that all its
// queries see. 0 for a request without queries.
std::pmr::vector<int> shareable_pages(const Spec& spec, const Workload& workload,
                                      Memory* memory = heap());

// `most_pages`: of each request, no more than its row has. Each page number is compared with those
// of one other row until they differ, so the work is O(pages), and a table that shares nothing is
// read at its first page only. REQUIRES: check_workload passed; page_indices is given.
PrefixForest find_prefixes(const Workload& workload, std::span<const int> most_pages,
                           Memory* memory = heap());

}  // namespace attnloom
