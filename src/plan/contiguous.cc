// SPDX-License-Identifier: Apache-2.0
#include "plan/contiguous.h"

#include <algorithm>

#include "plan/gangs.h"

namespace attnloom {
namespace {

// CTAs that the heads' number leaves over are worth it up to one in fifty: heads side by side read
// the same pages at the same time (1 to 5 % of bandwidth at page size 1).
int lanes_of(int ctas, int kv_heads) {
  return kv_heads <= ctas && ctas % kv_heads * 50 <= ctas ? kv_heads : 1;
}

}  // namespace

ContiguousCut::ContiguousCut(std::span<const QueryTile> tiles,
                             const std::vector<TileClass>& classes, int ctas, int kv_heads,
                             std::span<const ClassCost> costs, bool relaxed, Memory* memory)
    : tiles_(tiles),
      classes_(classes),
      ctas_(ctas),
      costs_(costs),
      relaxed_(relaxed),
      lanes_(lanes_of(ctas, kv_heads)),
      line_heads_(kv_heads / lanes_),
      groups_(ctas / lanes_),
      memory_(memory),
      pieces_(memory),
      chunks_(tiles.size() * static_cast<std::size_t>(line_heads_), 0, memory) {
  pieces_.reserve(chunks_.size() + static_cast<std::size_t>(groups_));  // a split a border
  cut();
}

double ContiguousCut::item_cost(int tile, std::int64_t tokens) const {
  return costs_[tiles_[tile].tile_class].of(tokens);
}

void ContiguousCut::cut() {
  double total = 0;
  double border = 0;
  for (int t = 0; t < std::ssize(tiles_); ++t) {
    total += item_cost(t, tiles_[t].live_end - tiles_[t].live_begin) * line_heads_;
    const ClassCost& cost = costs_[tiles_[t].tile_class];
    border = std::max(border, cost.item + 2 * cost.merge);
  }
  // Every border may add an item.
  share_ = (total + border * (groups_ - 1)) / groups_;
  for (int t = 0; t < std::ssize(tiles_); ++t) {
    for (int head = 0; head < line_heads_; ++head) cut_tile(t, head);
  }
  makespan_ = std::max(makespan_, used_);
}

void ContiguousCut::close_group() {
  makespan_ = std::max(makespan_, used_);
  used_ = 0;
  ++group_;
}

void ContiguousCut::cut_tile(int tile, int head) {
  std::int64_t at = tiles_[tile].live_begin;
  for (;;) {
    const std::int64_t tokens = take(tile, at);
    if (tokens < 0) {
      close_group();
      continue;
    }
    pieces_.push_back({tile, head, group_, chunks(tile, head)++, at, at + tokens});
    const bool split = at > tiles_[tile].live_begin || at + tokens < tiles_[tile].live_end;
    const double cost =
        item_cost(tile, tokens) + (split ? costs_[tiles_[tile].tile_class].merge : 0);
    used_ += cost;
    spent_ += cost;
    at += tokens;
    if (at >= tiles_[tile].live_end) return;  // of a tile without keys after its one empty piece
    close_group();
  }
}

// How many tokens from `at` the present group takes: all that are left, a part that leaves at least
// least_chunk on both sides, or (-1) none.
std::int64_t ContiguousCut::take(int tile, std::int64_t at) const {
  const std::int64_t rest = tiles_[tile].live_end - at;
  const std::int64_t kv = classes_[tiles_[tile].tile_class].kv;
  // Borders stand at multiples of the share from the start of the line: what rounding takes from
  // one range the next one gets, and not the last.
  const double room = share_ * (group_ + 1) - spent_;
  const ClassCost& cost = costs_[tiles_[tile].tile_class];
  const double token = cost.step / static_cast<double>(cost.step_tokens);
  const double last = item_cost(tile, rest) + (at > tiles_[tile].live_begin ? cost.merge : 0);
  if (last - room <= token * static_cast<double>(kv) / 2 || group_ == groups_ - 1) return rest;
  const double tokens = std::max((room - cost.item - cost.merge) / token, 0.0);
  const std::int64_t part = static_cast<std::int64_t>(tokens) / kv * kv;
  const std::int64_t least = relaxed_ && share_ >= item_cost(tile, tiles_[tile].least_chunk)
                                 ? kv
                                 : tiles_[tile].least_chunk;
  if (part < least) return used_ > 0 ? -1 : std::min(rest, least);
  if (rest - part >= least) return part;
  return rest >= 2 * least ? (rest - least) / kv * kv : rest;
}

void ContiguousCut::emit(Schedule& schedule, std::span<loom::WorkItem> items) const {
  // Of lane 0; the other lanes follow.
  std::pmr::vector<int> first_merge(chunks_.size(), -1, memory_);
  int partial_rows = 0;
  schedule.merges.clear();
  for (std::size_t i = 0; i < chunks_.size(); ++i) {
    const int tile = static_cast<int>(i) / line_heads_;
    if (chunks_[i] < 2) continue;
    first_merge[i] = static_cast<int>(schedule.merges.size());
    const int rows = classes_[tiles_[tile].tile_class].q;
    for (int lane = 0; lane < lanes_; ++lane)
      schedule.merges.push_back({partial_rows + lane * rows, chunks_[i]});
    partial_rows += chunks_[i] * lanes_ * rows;
  }
  std::pmr::vector<int> gangs(memory_);
  gangs.reserve(pieces_.size());
  for (const Piece& piece : pieces_) gangs.push_back(piece.group);
  gang_queues(gang_begins(gangs, groups_, memory_), ctas_, lanes_, &schedule.queues);
  for (std::size_t i = 0; i < pieces_.size(); ++i) {  // in the order of their gangs
    const Piece& piece = pieces_[i];
    const QueryTile& tile = tiles_[piece.tile];
    const std::size_t line = static_cast<std::size_t>(piece.tile) * line_heads_ + piece.head;
    // Keys that no row sees belong to the outer pieces, so that an item's range is what it says.
    const std::int64_t begin = piece.chunk == 0 ? tile.kv_begin : piece.begin;
    const std::int64_t end = piece.chunk + 1 == chunks_[line] ? tile.kv_len : piece.end;
    items[i] = work_item(tile, piece.head * lanes_, begin, end);
    if (first_merge[line] < 0) continue;
    items[i].merge = first_merge[line];
    items[i].partial_row = schedule.merges[items[i].merge].partial_row +
                           piece.chunk * lanes_ * classes_[tile.tile_class].q;
  }
  schedule.partial_rows = partial_rows;
  schedule.figures.contiguous = true;
  schedule.figures.makespan = makespan_;
  schedule.lanes = lanes_;
  schedule.stored_items = stored_items();
  schedule.figures.items = stored_items() * lanes_;
  schedule.figures.split_tiles = static_cast<int>(schedule.merges.size());
}

}  // namespace attnloom
