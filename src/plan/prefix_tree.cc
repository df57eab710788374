// SPDX-License-Identifier: Apache-2.0
#include "plan/prefix_tree.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>

namespace attnloom {
namespace {

// Equal page numbers from the start of both. Whole blocks go through memcmp, which compares as fast
// as memory is read.
int equal_pages(const std::int32_t* a, const std::int32_t* b, int count) {
  constexpr int kBlock = 64;
  int at = 0;
  while (at + kBlock <= count && std::memcmp(a + at, b + at, kBlock * sizeof(*a)) == 0)
    at += kBlock;
  while (at < count && a[at] == b[at]) ++at;
  return at;
}

class Builder {
 public:
  Builder(const Workload& workload, std::span<const int> most_pages, Memory* memory)
      : workload_(workload),
        most_pages_(most_pages),
        memory_(memory),
        nodes_(memory),
        edges_(memory),
        home_(memory) {
    const std::size_t batch = most_pages.size();
    nodes_.reserve(2 * batch + 1);
    nodes_.push_back({});
    home_.assign(batch, 0);
    // A request adds two edges at most; a quarter full, a probe meets its edge at once.
    edges_.resize(std::bit_ceil(8 * batch + 8));
  }

  PrefixForest build() {
    for (int r = 0; r < std::ssize(most_pages_); ++r) insert(r);
    return collect();
  }

 private:
  struct Node {
    int parent = -1;
    int begin = 0;
    int end = 0;
    int member = 0;  // whose row holds the pages
  };

  // From a node to the child whose pages begin with `page`.
  struct Edge {
    int node = -1;  // -1: free
    std::int32_t page = 0;
    int child = 0;
  };

  const std::int32_t* row(int request) const {
    return workload_.page_indices.data() + workload_.kv_indptr[request];
  }

  Edge& edge(int node, std::int32_t page) {
    const std::uint64_t key =
        (static_cast<std::uint64_t>(node) << 32 | static_cast<std::uint32_t>(page)) *
        0x9E3779B97F4A7C15u;
    std::size_t at = static_cast<std::size_t>(key >> 32) & (edges_.size() - 1);
    while (edges_[at].node >= 0 && (edges_[at].node != node || edges_[at].page != page))
      at = (at + 1) & (edges_.size() - 1);
    return edges_[at];
  }

  int add_node(Node node) {
    nodes_.push_back(node);
    return static_cast<int>(nodes_.size()) - 1;
  }

  void insert(int request) {
    const std::int32_t* pages = row(request);
    const int end = most_pages_[request];
    int node = 0;
    int at = 0;
    while (at < end) {
      ++compared_;
      Edge& edge = this->edge(node, pages[at]);
      if (edge.node < 0) {
        edge = {node, pages[at], add_node({node, at, end, request})};
        node = edge.child;
        break;
      }
      met_ = true;
      const Node& child = nodes_[edge.child];
      const int length = std::min(child.end, end) - at;
      const int equal = equal_pages(row(child.member) + at, pages + at, length);
      compared_ += std::min(equal + 1, length);
      at += equal;
      node = at < child.end ? split(edge, at) : edge.child;
    }
    home_[request] = node;
  }

  // Cuts the edge's child in two; the upper part, which is returned, takes its place.
  int split(Edge& edge, int at) {
    const int lower = edge.child;
    Node upper = nodes_[lower];
    upper.end = at;
    const int index = add_node(upper);
    nodes_[lower].begin = at;
    nodes_[lower].parent = index;
    edge.child = index;
    const std::int32_t page = row(upper.member)[at];
    this->edge(index, page) = {index, page, lower};
    return index;
  }

  PrefixForest forest() const {
    PrefixForest forest = no_prefixes(memory_);
    forest.compared_pages = compared_;
    return forest;
  }

  // Members below each node, then what is worth a word from the root down.
  PrefixForest collect() {
    if (!met_) return forest();
    const std::pmr::vector<int> depth_order = by_depth();
    std::pmr::vector<int> members(nodes_.size(), 0, memory_);
    for (const int node : home_) ++members[node];
    for (std::size_t i = nodes_.size() - 1; i > 0; --i)
      members[nodes_[depth_order[i]].parent] += members[depth_order[i]];
    return number(depth_order, members);
  }

  // Parents first: a child's pages begin behind its parent's.
  std::pmr::vector<int> by_depth() const {
    std::pmr::vector<int> order(nodes_.size(), memory_);
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin() + 1, order.end(), [&](int a, int b) {
      return nodes_[a].begin != nodes_[b].begin ? nodes_[a].begin < nodes_[b].begin : a < b;
    });
    return order;
  }

  PrefixForest number(std::span<const int> depth_order, std::span<const int> members) const {
    PrefixForest forest = this->forest();
    // Where each node's members begin, and how many places its children took so far. The node's own
    // requests come behind those of its children.
    std::pmr::vector<int> first(nodes_.size(), 0, memory_);
    std::pmr::vector<int> taken(nodes_.size(), 0, memory_);
    std::pmr::vector<int> kept(nodes_.size(), -1, memory_);
    for (const int n : depth_order) {
      const int parent = nodes_[n].parent;
      if (parent >= 0) {
        first[n] = first[parent] + taken[parent];
        taken[parent] += members[n];
      }
      if (parent < 0 || members[n] < 2) continue;
      kept[n] = static_cast<int>(forest.nodes.size());
      forest.nodes.push_back({.parent = kept[parent],
                              .begin = nodes_[n].begin,
                              .end = nodes_[n].end,
                              .first_member = first[n],
                              .member_end = first[n] + members[n]});
    }
    forest.order.resize(home_.size());
    for (int r = 0; r < std::ssize(home_); ++r)
      forest.order[first[home_[r]] + taken[home_[r]]++] = r;
    return forest;
  }

  const Workload& workload_;
  const std::span<const int> most_pages_;
  Memory* const memory_;
  std::pmr::vector<Node> nodes_;  // nodes_[0] is the root, which has no pages
  std::pmr::vector<Edge> edges_;  // open addressing
  std::pmr::vector<int> home_;    // the node at which each request ends
  bool met_ = false;              // two rows begin alike
  std::int64_t compared_ = 0;
};

}  // namespace

std::pmr::vector<int> shareable_pages(const Spec& spec, const Workload& workload, Memory* memory) {
  std::pmr::vector<int> pages(static_cast<std::size_t>(workload.batch()), 0, memory);
  for (int r = 0; r < workload.batch(); ++r) {
    const int qo_len = workload.qo_indptr[r + 1] - workload.qo_indptr[r];
    if (qo_len == 0) continue;
    const std::int64_t keys =
        kv_len(workload, spec.layout, r) - (spec.variant.mask.causal ? qo_len - 1 : 0);
    pages[r] = static_cast<int>(std::max<std::int64_t>(keys, 0) / spec.layout.page_size);
  }
  return pages;
}

PrefixForest find_prefixes(const Workload& workload, std::span<const int> most_pages,
                           Memory* memory) {
  return Builder(workload, most_pages, memory).build();
}

}  // namespace attnloom
