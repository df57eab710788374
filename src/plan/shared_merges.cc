// SPDX-License-Identifier: Apache-2.0
#include "plan/shared_merges.h"

#include <algorithm>

#include "plan/layout.h"

namespace attnloom {
namespace {

class Merger {
 public:
  Merger(const KernelChoice& kernel, int kv_heads, const SharedRows& shared,
         const std::vector<loom::RequestRow>& rows, Schedule& schedule,
         std::span<loom::WorkItem> items)
      : kernel_(kernel),
        kv_heads_(kv_heads),
        shared_(shared),
        rows_(rows),
        schedule_(schedule),
        items_(items),
        states_(rows.size()),
        first_merge_(rows.size(), -1) {}

  SharedTables run() {
    place_states();
    list_runs();
    for (loom::WorkItem& item : items_) {
      if (states_[item.request].chunks > 0) item.merge = first_merge_[item.request] + item.kv_head;
    }
    return std::move(tables_);
  }

 private:
  // Chunks in the order of their keys, counted on head 0 (all heads are cut alike), and a place for
  // the state of each.
  void place_states() {
    struct Chunk {
      int entry;
      int begin;
    };
    std::vector<Chunk> chunks;
    for (const loom::WorkItem& item : items_) {
      if (!shared_.shares(item.request, rows_[item.request])) continue;
      states_[item.request].rows = kernel_.classes[item.tile_class].q;
      if (item.kv_head == 0) chunks.push_back({item.request, item.kv_begin});
    }
    std::sort(chunks.begin(), chunks.end(), [](const Chunk& a, const Chunk& b) {
      return a.entry != b.entry ? a.entry < b.entry : a.begin < b.begin;
    });
    std::vector<int> begins;  // by entry
    std::vector<int> first(rows_.size(), 0);
    for (const Chunk& chunk : chunks) {
      loom::StateRun& states = states_[chunk.entry];
      if (states.chunks == 0) {
        first[chunk.entry] = static_cast<int>(begins.size());
        states.row = static_cast<int>(schedule_.partial_rows);
      }
      ++states.chunks;
      schedule_.partial_rows += std::int64_t{kv_heads_} * states.rows;
      begins.push_back(chunk.begin);
    }
    for (loom::WorkItem& item : items_) {
      const loom::StateRun& states = states_[item.request];
      if (states.chunks == 0) continue;
      const auto begin = begins.begin() + first[item.request];
      const auto chunk = std::lower_bound(begin, begin + states.chunks, item.kv_begin) - begin;
      item.partial_row =
          states.row + (static_cast<int>(chunk) * kv_heads_ + item.kv_head) * states.rows;
    }
  }

  void list_runs() {
    std::vector<std::vector<const SharedMember*>> prefixes(rows_.size());
    for (const SharedMember& member : shared_.members) prefixes[member.request].push_back(&member);
    for (int r = 0; r < std::ssize(rows_); ++r) {
      if (prefixes[r].empty()) continue;
      first_merge_[r] = static_cast<int>(schedule_.merges.size());
      const int first_run = static_cast<int>(tables_.runs.size());
      int states = 0;
      for (const SharedMember* prefix : prefixes[r]) {
        loom::StateRun run = states_[prefix->entry];
        run.row += prefix->row;
        states += run.chunks;
        tables_.runs.push_back(run);
      }
      if (states_[r].chunks > 0) tables_.runs.push_back(states_[r]);
      states += states_[r].chunks;
      for (int head = 0; head < kv_heads_; ++head) schedule_.merges.push_back({~first_run, states});
    }
    for (const SharedMember& member : shared_.members) {
      tables_.members.push_back({member.request, first_merge_[member.request]});
      if (first_merge_[member.entry] < 0) first_merge_[member.entry] = first_merge_[member.request];
    }
  }

  const KernelChoice& kernel_;
  const int kv_heads_;
  const SharedRows& shared_;
  const std::vector<loom::RequestRow>& rows_;
  Schedule& schedule_;
  std::span<loom::WorkItem> items_;
  std::vector<loom::StateRun> states_;  // of each entry that shares
  std::vector<int> first_merge_;        // of each entry that shares, on KV head 0
  SharedTables tables_;
};

}  // namespace

Result<SharedTables> merge_shared(const KernelChoice& kernel, const PlanLayout& layout,
                                  int kv_heads, const SharedRows& shared,
                                  const std::vector<loom::RequestRow>& rows, Schedule& schedule,
                                  std::span<loom::WorkItem> items) {
  SharedTables tables = Merger(kernel, kv_heads, shared, rows, schedule, items).run();
  ATTNLOOM_CHECK(check_room("merges", std::ssize(schedule.merges), layout.max_merges, "max_batch"));
  ATTNLOOM_CHECK(
      check_room("partial rows", schedule.partial_rows, layout.max_partial_rows, "max_batch"));
  return tables;
}

}  // namespace attnloom
