// SPDX-License-Identifier: Apache-2.0
// The least loaded of a number of gangs, ties to the lowest: a tournament tree. Its walk from a
// leaf to the root has no branch that depends on loads; a heap's mispredicted once a level. Not
// shared between threads.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <limits>
#include <memory_resource>
#include <vector>

#include "plan/scratch.h"

namespace attnloom {

class LeastLoaded {
 public:
  explicit LeastLoaded(int gangs, Memory* memory = heap())
      : leaves_(std::bit_ceil(static_cast<std::size_t>(gangs))),
        nodes_(2 * leaves_, Node{std::numeric_limits<double>::infinity(), 0}, memory) {
    for (int gang = 0; gang < gangs; ++gang) nodes_[leaves_ + gang] = {0.0, gang};
    for (std::size_t node = leaves_ - 1; node > 0; --node)
      nodes_[node] = lesser(nodes_[2 * node], nodes_[2 * node + 1]);
  }

  // Gives the gang that took it.
  int take(double cost) {
    const int gang = nodes_[1].gang;
    std::size_t node = leaves_ + static_cast<std::size_t>(gang);
    Node winner{nodes_[node].load + cost, gang};
    nodes_[node] = winner;
    most_ = std::max(most_, winner.load);
    for (; node > 1; nodes_[node /= 2] = winner) winner = lesser(winner, nodes_[node ^ 1]);
    return gang;
  }

  double most() const { return most_; }

 private:
  struct Node {
    double load;
    int gang;
  };

  static Node lesser(const Node& a, const Node& b) {
    const bool first = (a.load < b.load) | ((a.load == b.load) & (a.gang < b.gang));
    return {std::min(a.load, b.load), first ? a.gang : b.gang};
  }

  std::size_t leaves_;
  std::pmr::vector<Node> nodes_;  // the root is 1; leaves from leaves_ on
  double most_ = 0;
};

}  // namespace attnloom
