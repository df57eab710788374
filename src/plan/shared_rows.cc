// SPDX-License-Identifier: Apache-2.0
#include "plan/shared_rows.h"

#include <algorithm>

#include "plan/levels.h"
#include "plan/share_rule.h"

namespace attnloom {
namespace {

class Sharer {
 public:
  Sharer(const Spec& spec, const Workload& workload, const ShareRoom& room,
         std::pmr::vector<loom::RequestRow>& rows, Memory* memory)
      : spec_(spec),
        workload_(workload),
        room_(room),
        rows_(rows),
        memory_(memory),
        packed_(memory),
        forest_(no_prefixes(memory)),
        worth_(memory),
        shared_(memory) {
    packed_.reserve(rows.size());
    for (const loom::RequestRow& row : rows)
      packed_.push_back(std::int64_t{row.qo_len} * spec.group_size);
  }

  SharedRows run() {
    find();
    if (forest_.nodes.empty()) return SharedRows(memory_);
    shared_.walk_begin.assign(rows_.size(), 0);
    // The tokens of each node's members that are already shared.
    std::pmr::vector<int> covered(forest_.nodes.size(), 0, memory_);
    for (std::size_t n = 0; n < forest_.nodes.size(); ++n) {
      const PrefixNode& node = forest_.nodes[n];
      const int begin = node.parent < 0 ? 0 : covered[node.parent];
      const int end = node.end * spec_.layout.page_size;
      covered[n] = worth_[n] && add_node(node, begin, end) ? end : begin;
    }
    if (shared_.empty()) return SharedRows(memory_);
    return std::move(shared_);
  }

 private:
  void find() {
    if (!workload_.levels.empty()) {
      forest_ = forest_of_levels(workload_, memory_);
      worth_.assign(forest_.nodes.size(), true);
      return;
    }
    std::pmr::vector<int> pages = shareable_pages(spec_, workload_, memory_);
    for (std::size_t r = 0; r < pages.size(); ++r) {
      if (!is_short(static_cast<int>(r))) pages[r] = 0;
    }
    forest_ = find_prefixes(workload_, pages, memory_);
    worth_ = worth_sharing(ShareRule(spec_), forest_, packed_, room_.tile_rows,
                           spec_.layout.page_size, memory_);
  }

  // Two such requests fit a tile. One with more rows reads its keys for many rows as it is.
  bool is_short(int request) const { return 2 * packed_[request] <= room_.tile_rows; }

  // An upper bound of the rows of a tile that holds `rows` in whatever kernel is chosen.
  std::int64_t class_rows(std::int64_t rows) const {
    return rows <= room_.least_tile_rows ? room_.least_tile_rows : room_.tile_rows;
  }

  // False where a member is too long or there is no room.
  bool add_node(const PrefixNode& node, int begin, int end) {
    const std::size_t old_rows = rows_.size();
    const std::size_t old_members = shared_.members.size();
    const std::size_t old_tokens = shared_.tokens.size();
    std::int64_t partial_rows = partial_rows_;
    std::int64_t tile = room_.tile_rows;  // rows taken of the last one; full at first
    for (int m = node.first_member; m < node.member_end; ++m) {
      const int request = forest_.order[m];
      const std::int64_t rows = packed_[request];
      if (rows == 0) continue;
      if (!is_short(request)) return undo(old_rows, old_members, old_tokens);
      if (tile + rows > room_.tile_rows) {
        if (rows_.size() > old_rows) partial_rows += class_rows(tile);
        add_entry(request, begin, end);
        tile = 0;
      }
      if (shared_.walk_begin[request] == 0) partial_rows += class_rows(rows);
      add_member(request, static_cast<int>(tile));
      tile += rows;
    }
    if (rows_.size() > old_rows) partial_rows += class_rows(tile);
    const bool fits = std::ssize(rows_) - workload_.batch() <= room_.entries &&
                      std::ssize(shared_.members) <= room_.members &&
                      std::ssize(shared_.tokens) <= room_.tokens &&
                      partial_rows <= room_.partial_rows;
    if (!fits || rows_.size() == old_rows) return undo(old_rows, old_members, old_tokens);
    partial_rows_ = partial_rows;
    for (std::size_t m = old_members; m < shared_.members.size(); ++m)
      shared_.walk_begin[shared_.members[m].request] = end;
    return true;
  }

  bool undo(std::size_t rows, std::size_t members, std::size_t tokens) {
    rows_.resize(rows);
    shared_.walk_begin.resize(rows);
    shared_.members.resize(members);
    shared_.tokens.resize(tokens);
    return false;
  }

  // Every key of a shared entry comes before every query of its members: a query shift of `end`
  // lets all of them through the causal mask.
  void add_entry(int request, int begin, int end) {
    loom::RequestRow row{};
    row.batch = request;
    row.kv_begin = workload_.kv_indptr[request];
    row.kv_len = end;
    row.walk_len = end;
    row.list_begin = static_cast<int>(shared_.tokens.size());
    row.qo_begin = static_cast<int>(shared_.members.size());
    rows_.push_back(row);
    shared_.walk_begin.push_back(begin);
  }

  void add_member(int request, int row) {
    loom::RequestRow& entry = rows_.back();
    const loom::RequestRow& own = rows_[request];
    const int shift = own.kv_len - own.qo_len;
    for (int token = 0; token < own.qo_len; ++token)
      shared_.tokens.push_back({own.qo_begin + token, token + shift});
    entry.q_end += own.qo_len;
    ++entry.member_count;
    shared_.members.push_back({static_cast<int>(rows_.size()) - 1, request, row});
  }

  const Spec& spec_;
  const Workload& workload_;
  const ShareRoom& room_;
  std::pmr::vector<loom::RequestRow>& rows_;
  Memory* const memory_;
  std::pmr::vector<std::int64_t> packed_;  // of each request
  PrefixForest forest_;
  std::pmr::vector<bool> worth_;
  std::int64_t partial_rows_ = 0;
  SharedRows shared_;
};

}  // namespace

SharedRows share_prefixes(const Spec& spec, const Workload& workload, const ShareRoom& room,
                          std::pmr::vector<loom::RequestRow>& rows, Memory* memory) {
  const bool given = !workload.levels.empty() || !workload.page_indices.empty();
  if (!given || room.tile_rows < 2) return SharedRows(memory);
  return Sharer(spec, workload, room, rows, memory).run();
}

}  // namespace attnloom
