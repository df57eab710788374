// SPDX-License-Identifier: Apache-2.0
// The contiguous cut (stream-K; LeanAttention, arXiv 2405.10480): all output tiles on one line, cut
// into ranges of equal cost, one a CTA. No queue is longer than another, at the price of a split at
// most borders; Algorithm 1, which splits by one chunk length for the whole batch, wins where its
// chunks happen to fill the CTAs evenly. Pure; deterministic; thread-safe.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <span>
#include <vector>

#include "plan/plan.h"
#include "plan/query_tile.h"
#include "plan/schedule.h"
#include "plan/scratch.h"
#include "spec/tiles.h"

namespace attnloom {

// REQUIRES: no tile shares its states with others, whose chunks would have to be the same on every
// head.
class ContiguousCut {
 public:
  ContiguousCut(std::span<const QueryTile> tiles, const std::vector<TileClass>& classes, int ctas,
                int kv_heads, std::span<const ClassCost> costs, bool relaxed, Memory* memory);

  double makespan() const { return makespan_; }
  int stored_items() const { return static_cast<int>(pieces_.size()); }

  // Takes the place of whatever cut the schedule holds. Never more than a split for each CTA but
  // one: within the bounds of plan_layout.
  void emit(Schedule& schedule, std::span<loom::WorkItem> items) const;

 private:
  struct Piece {
    int tile = 0;
    int head = 0;  // of the line
    int group = 0;
    int chunk = 0;  // within its output tile
    std::int64_t begin = 0;
    std::int64_t end = 0;
  };

  void cut();
  void cut_tile(int tile, int head);
  double item_cost(int tile, std::int64_t tokens) const;
  std::int64_t take(int tile, std::int64_t at) const;
  void close_group();
  int& chunks(int tile, int head) { return chunks_[tile * line_heads_ + head]; }

  const std::span<const QueryTile> tiles_;
  const std::vector<TileClass>& classes_;
  const int ctas_;
  const std::span<const ClassCost> costs_;  // of the classes
  const bool relaxed_;                      // the costs say what a short piece costs
  int lanes_ = 1;                           // KV heads that neighbouring CTAs walk side by side
  int line_heads_ = 1;                      // KV heads on the line: kv_heads / lanes
  int groups_ = 1;                          // CTAs / lanes
  double share_ = 0;
  double used_ = 0;   // by the group
  double spent_ = 0;  // by all groups so far
  double makespan_ = 0;
  int group_ = 0;
  Memory* const memory_;
  std::pmr::vector<Piece> pieces_;
  std::pmr::vector<int> chunks_;  // of each output tile of the line
};

}  // namespace attnloom
