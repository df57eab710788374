// SPDX-License-Identifier: Apache-2.0
#include "plan/shared_merges.h"

#include <algorithm>

#include "plan/layout.h"

namespace attnloom {
namespace {

class Merger {
 public:
  Merger(const KernelChoice& kernel, int kv_heads, const SharedRows& shared,
         std::span<const loom::RequestRow> rows, Schedule& schedule,
         std::span<loom::WorkItem> items, Memory* memory)
      : kernel_(kernel),
        kv_heads_(kv_heads),
        shared_(shared),
        rows_(rows),
        schedule_(schedule),
        items_(items),
        memory_(memory),
        states_(rows.size(), memory),
        first_merge_(rows.size(), -1, memory),
        tables_(memory) {}

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
    std::pmr::vector<Chunk> chunks(memory_);
    for (const loom::WorkItem& item : items_) {
      if (!shared_.shares(item.request, rows_[item.request])) continue;
      states_[item.request].rows = kernel_.classes[item.tile_class].q;
      if (item.kv_head == 0) chunks.push_back({item.request, item.kv_begin});
    }
    std::sort(chunks.begin(), chunks.end(), [](const Chunk& a, const Chunk& b) {
      return a.entry != b.entry ? a.entry < b.entry : a.begin < b.begin;
    });
    std::pmr::vector<int> begins(memory_);  // by entry
    std::pmr::vector<int> first(rows_.size(), 0, memory_);
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

  struct Prefixes {
    std::pmr::vector<int> begins;                  // of each entry, [entries + 1]
    std::pmr::vector<const SharedMember*> listed;  // by request, the outermost first

    std::span<const SharedMember* const> of(int request) const {
      return std::span(listed).subspan(begins[request], begins[request + 1] - begins[request]);
    }
  };

  Prefixes prefixes_of_requests() const {
    Prefixes prefixes{
        .begins = std::pmr::vector<int>(rows_.size() + 2, 0, memory_),
        .listed = std::pmr::vector<const SharedMember*>(shared_.members.size(), memory_)};
    // Two places ahead, so that the ends that are counted up below are the next one's begins.
    std::pmr::vector<int>& ends = prefixes.begins;
    for (const SharedMember& member : shared_.members) ++ends[member.request + 2];
    for (std::size_t r = 2; r < ends.size(); ++r) ends[r] += ends[r - 1];
    for (const SharedMember& member : shared_.members)
      prefixes.listed[ends[member.request + 1]++] = &member;
    return prefixes;
  }

  void list_runs() {
    const Prefixes prefixes = prefixes_of_requests();
    for (int r = 0; r < std::ssize(rows_); ++r) {
      if (prefixes.of(r).empty()) continue;
      first_merge_[r] = static_cast<int>(schedule_.merges.size());
      const int first_run = static_cast<int>(tables_.runs.size());
      int states = 0;
      for (const SharedMember* prefix : prefixes.of(r)) {
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
  const std::span<const loom::RequestRow> rows_;
  Schedule& schedule_;
  std::span<loom::WorkItem> items_;
  Memory* const memory_;
  std::pmr::vector<loom::StateRun> states_;  // of each entry that shares
  std::pmr::vector<int> first_merge_;        // of each entry that shares, on KV head 0
  SharedTables tables_;
};

}  // namespace

Result<SharedTables> merge_shared(const KernelChoice& kernel, const PlanLayout& layout,
                                  int kv_heads, const SharedRows& shared,
                                  std::span<const loom::RequestRow> rows, Schedule& schedule,
                                  std::span<loom::WorkItem> items, Memory* memory) {
  SharedTables tables = Merger(kernel, kv_heads, shared, rows, schedule, items, memory).run();
  ATTNLOOM_CHECK(check_room("merges", std::ssize(schedule.merges), layout.max_merges, "max_batch"));
  ATTNLOOM_CHECK(
      check_room("partial rows", schedule.partial_rows, layout.max_partial_rows, "max_batch"));
  return tables;
}

}  // namespace attnloom
