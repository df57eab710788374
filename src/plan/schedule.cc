// SPDX-License-Identifier: Apache-2.0
#include "plan/schedule.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <string>
#include <tuple>

#include "base/divide_up.h"
#include "plan/contiguous.h"
#include "plan/gangs.h"
#include "plan/invariant.h"
#include "plan/layout.h"
#include "plan/least_chunk.h"
#include "plan/least_loaded.h"
#include "plan/query_tile.h"
#include "plan/sections.h"
#include "spec/wgmma_tiles.h"

namespace attnloom {
namespace {

// Chunks of equal cost of one query tile, on every KV head: what is sorted, as heads and equal
// chunks need no sorting against each other (a decode batch of 256 with 8 heads sorts hundreds of
// runs, not thousands of items).
struct Run {
  bool prefix = false;  // of a shared prefix
  int section = 0;
  double cost = 0;
  int tile = 0;  // index of the query tile
  int first_chunk = 0;
  int chunks = 0;       // of this run
  int tile_chunks = 0;  // of the whole output tile
  std::int64_t chunk_tokens = 0;
  int partial_row = -1;  // of head 0, chunk 0
  int merge = -1;        // of head 0
};

// Cost of the longest queue over the mean above which another cut is tried.
constexpr double kGoodBalance = 1.02;

// Items are built where the plan keeps them: behind the tables of its block.
std::span<loom::WorkItem> place_items(std::vector<std::byte>& block, const PlanLayout& layout,
                                      int count) {
  block.resize(layout.items_offset + static_cast<std::size_t>(count) * sizeof(loom::WorkItem));
  return items_of(block, layout, count);
}

class Scheduler {
 public:
  Scheduler(const Spec& spec, const KernelChoice& kernel, int ctas, const Workload& workload,
            std::span<const loom::RequestRow> rows, const SharedRows& shared,
            const Selection& selection, const CostModel& cost, ScheduleChoice choice,
            Memory* memory)
      : spec_(spec),
        kernel_(kernel),
        ctas_(ctas),
        workload_(workload),
        rows_(rows),
        shared_(shared),
        selection_(selection),
        choice_(choice),
        cost_(cost),
        memory_(memory),
        costs_(memory),
        least_(memory),
        tiles_(memory),
        runs_(memory),
        lanes_(std::gcd(ctas, workload.kv_heads)),
        order_(memory),
        schedule_(memory) {}

  Result<Schedule> run(const PlanLayout& layout, std::vector<std::byte>& block) {
    std::int64_t tiles = 0;  // on one KV head
    for (int r = 0; r < std::ssize(rows_); ++r)
      tiles += divide_up(packed_rows(spec_, rows_[r]), shape(r).q);
    ATTNLOOM_CHECK(
        check_room("work items", tiles * workload_.kv_heads, layout.max_items, "max_qo_tokens"));
    list_tiles(tiles);
    cut();
    ATTNLOOM_CHECK(check_room("work items", items_, layout.max_items, "max_qo_tokens"));
    ATTNLOOM_CHECK(
        check_room("merges", std::ssize(schedule_.merges), layout.max_merges, "max_batch"));
    ATTNLOOM_CHECK(check_room("partial rows", partial_rows_, layout.max_partial_rows, "max_batch"));
    schedule_.partial_rows = partial_rows_;
    put_in_order();
    if (cost_.judges) schedule_.figures.reachable = reachable();
    if (take_shorter(layout, block)) return std::move(schedule_);
    scatter(place_items(block, layout, schedule_.stored_items));
    return std::move(schedule_);
  }

 private:
  const TileClass& shape(int r) const { return kernel_.classes[selection_.tile_class[r]]; }

  // The keys that the rows of a tile can see at all: all of them but for causal masks and windows.
  // Block-sparse lists are left whole, as only the kernel knows where their blocks stand.
  QueryTile query_tile(int r, std::int64_t q_row) const {
    const loom::RequestRow& row = rows_[r];
    QueryTile tile{.request = r,
                   .q_row = static_cast<int>(q_row),
                   .tile_class = selection_.tile_class[r],
                   .kv_begin = shared_.begin_of(r),
                   .kv_len = row.walk_len,
                   .shares = shared_.shares(r, rows_[r]),
                   .live_begin = shared_.begin_of(r),
                   .live_end = row.walk_len,
                   .least_chunk = least_[r]};
    const Mask& mask = spec_.variant.mask;
    const std::int64_t window =
        mask.window_left ? *mask.window_left : workload_.window_left.value_or(-1);
    if (spec_.layout.kv == KvLayout::kBsr || (!mask.causal && window < 0)) return tile;
    const std::int64_t shift = std::int64_t{row.kv_len} - row.qo_len;
    const std::int64_t first = tile.q_row / spec_.group_size + shift;
    const std::int64_t last =
        std::min<std::int64_t>((tile.q_row + shape(r).q - 1) / spec_.group_size, row.qo_len - 1) +
        shift;
    if (mask.causal) tile.live_end = std::clamp<std::int64_t>(last + 1, tile.kv_begin, tile.kv_len);
    if (window >= 0)
      tile.live_begin =
          std::clamp<std::int64_t>(first - window, 0, tile.live_end) / shape(r).kv * shape(r).kv;
    return tile;
  }

  void list_tiles(std::int64_t count) {
    tiles_.reserve(static_cast<std::size_t>(count));
    least_.reserve(rows_.size());
    for (int r = 0; r < std::ssize(rows_); ++r)
      least_.push_back(
          selection_.batch_invariant
              ? invariant_chunk(shape(r), packed_rows(spec_, rows_[r]), rows_[r].walk_len)
              : least_chunk(spec_, shape(r), packed_rows(spec_, rows_[r]),
                            rows_[r].walk_len - shared_.begin_of(r), rows_[r].member_count > 0));
    for (int r = 0; r < std::ssize(rows_); ++r) {
      // Others read all of its keys.
      if (shared_.begin_of(r) > 0 && shared_.begin_of(r) == rows_[r].walk_len) continue;
      const std::int64_t first = std::int64_t{rows_[r].q_first} * spec_.group_size;
      const std::int64_t end = first + packed_rows(spec_, rows_[r]);
      for (std::int64_t q_row = first; q_row < end; q_row += shape(r).q)
        tiles_.push_back(query_tile(r, q_row));
    }
  }

  bool is_prefix(const QueryTile& tile) const { return rows_[tile.request].member_count > 0; }

  // Prefix tiles go first and evenly over all CTAs, so that their states lie ready when the
  // members' own items end: the last arriver at an output is then one of many, and not one CTA that
  // merges for all members of a prefix tile.
  void cut() {
    std::int64_t tokens = 0;  // below 2^62, as the tiles were just bounded by an int32
    std::int64_t prefix_tokens = 0;
    for (const QueryTile& tile : tiles_) {
      tokens += (tile.kv_len - tile.kv_begin) * workload_.kv_heads;
      if (is_prefix(tile)) prefix_tokens += (tile.kv_len - tile.kv_begin) * workload_.kv_heads;
    }
    // A batch-invariant chunk is what an entry's own lengths make it.
    const std::int64_t chunk = selection_.batch_invariant ? 0 : divide_up(tokens, ctas_);
    const std::int64_t prefix_chunk = divide_up(prefix_tokens, ctas_);
    schedule_.figures.chunk_tokens = chunk;
    price(chunk);
    runs_.reserve(tiles_.size());  // more where tiles are split
    const std::int64_t remainder =
        has_sections() && chunk > 0 ? remainder_tiles(tiles_, ctas_, workload_.kv_heads) : 0;
    const std::int64_t whole = std::ssize(tiles_) - remainder;
    for (int t = 0; t < std::ssize(tiles_); ++t) {
      const std::int64_t kv = kernel_.classes[tiles_[t].tile_class].kv;
      std::int64_t own = chunk;
      if (t >= whole)
        own = divide_up(remainder * workload_.kv_heads * (tiles_[t].kv_len - tiles_[t].kv_begin),
                        ctas_);
      if (is_prefix(tiles_[t])) {  // in equal parts, as many as come nearest to the chunk
        const std::int64_t length = tiles_[t].kv_len - tiles_[t].kv_begin;
        own = divide_up(length,
                        std::max<std::int64_t>((length + prefix_chunk / 2) / prefix_chunk, 1));
      }
      cut_tile(t, std::max(divide_up(own, kv) * kv, tiles_[t].least_chunk));
    }
  }

  // What items of each class cost, by how long they are on average.
  void price(std::int64_t chunk) {
    std::pmr::vector<std::int64_t> tokens(kernel_.classes.size(), 0, memory_);
    std::pmr::vector<std::int64_t> tiles(kernel_.classes.size(), 0, memory_);
    for (const QueryTile& tile : tiles_) {
      tokens[tile.tile_class] += tile.live_end - tile.live_begin;
      ++tiles[tile.tile_class];
    }
    costs_.reserve(tiles.size());
    for (std::size_t c = 0; c < tiles.size(); ++c) {
      std::int64_t usual = tokens[c] / std::max<std::int64_t>(tiles[c], 1);
      if (chunk > 0) usual = std::min(usual, chunk);
      costs_.push_back(cost_.of_class(spec_, kernel_.classes[c], ctas_, usual));
    }
  }

  void cut_tile(int index, std::int64_t chunk) {
    const QueryTile& tile = tiles_[index];
    const std::int64_t rows = kernel_.classes[tile.tile_class].q;
    const std::int64_t chunks =
        std::max<std::int64_t>(divide_up(tile.kv_len - tile.kv_begin, chunk), 1);
    Run run{.prefix = is_prefix(tile),
            .tile = index,
            .tile_chunks = static_cast<int>(chunks),
            .chunk_tokens = chunk};
    if (chunks > 1 && !tile.shares) {
      run.merge = static_cast<int>(schedule_.merges.size());
      run.partial_row = static_cast<int>(partial_rows_);
      for (int head = 0; head < workload_.kv_heads; ++head) {
        const std::int64_t lane = head % lanes_;
        schedule_.merges.push_back(
            {static_cast<int>(partial_rows_ + lane * rows), static_cast<int>(chunks)});
        if (lane + 1 == lanes_) partial_rows_ += chunks * lanes_ * rows;
      }
      schedule_.figures.split_tiles += workload_.kv_heads;
    }
    items_ += chunks * workload_.kv_heads;
    // Neighbouring chunks of one cost are one run.
    std::int64_t first = 0;
    for (std::int64_t c = 1; c <= chunks; ++c) {
      const double cost = chunk_cost(tile, first, chunk);
      if (c < chunks && chunk_cost(tile, c, chunk) == cost) continue;
      push(run, cost, first, c - first);
      first = c;
    }
  }

  double chunk_cost(const QueryTile& tile, std::int64_t index, std::int64_t chunk) const {
    const ClassCost& cost = costs_[tile.tile_class];
    return cost.of(live_tokens(tile, tile.kv_begin + index * chunk,
                               tile.kv_begin + (index + 1) * chunk)) +
           (tile.shares || tile.kv_len - tile.kv_begin > chunk ? cost.merge : 0);
  }

  // max of: the tiles dealt out evenly; the longest way to one output, cut as finely as it may be;
  // and the even share of all tiles, items and borders, with one tile that does not divide.
  double reachable() const {
    double tiles = 0, steps = 0, items = 0, longest = 0, step = 0, fixed = 0, border = 0;
    for (const QueryTile& tile : tiles_) {
      const ClassCost& cost = costs_[tile.tile_class];
      const std::int64_t live = tile.live_end - tile.live_begin;
      const double tile_steps =
          std::ceil(static_cast<double>(live) / static_cast<double>(cost.step_tokens));
      tiles += tile_steps * workload_.kv_heads;
      steps += cost.step * tile_steps * workload_.kv_heads;
      items += (cost.item + 2 * cost.merge) * workload_.kv_heads;
      const bool divides = live >= 2 * tile.least_chunk;
      longest = std::max(longest, divides ? cost.of(tile.least_chunk) + cost.merge : cost.of(live));
      step = std::max(step, cost.step);
      fixed = std::max(fixed, cost.item);
      border = std::max(border, cost.item + 2 * cost.merge);
    }
    if (tiles == 0) return longest;
    const double even = std::ceil(tiles / ctas_) * (steps / tiles) + fixed;
    return std::max({even, longest, (steps + items + border * (ctas_ - 1)) / ctas_ + step});
  }

  bool has_sections() const { return kernel_.family == kWgmmaFamily && shared_.empty(); }
  double good_balance() const { return has_sections() ? kGoodBalanceOfSections : kGoodBalance; }
  bool is_balanced() const {
    return schedule_.figures.makespan <= good_balance() * schedule_.figures.ideal;
  }

  // Runs to queues, section by section where that leaves the queues in balance.
  void put_in_order() {
    if (has_sections()) {
      const std::pmr::vector<int> sections = sections_of(spec_, workload_.kv_heads, rows_, memory_);
      for (Run& run : runs_) run.section = sections[tiles_[run.tile].request];
    }
    sort_runs();
    assign();
    if (!has_sections() || is_balanced()) return;
    for (Run& run : runs_) run.section = 0;
    sort_runs();
    assign();
  }

  // The contiguous cut instead, where Algorithm 1 is out of balance and its longest queue is the
  // shorter one. (Where tokens cost nothing a line has no length to cut.)
  bool take_shorter(const PlanLayout& layout, std::vector<std::byte>& block) {
    if (selection_.batch_invariant || choice_ == ScheduleChoice::kAlgorithm1 || cost_.beta <= 0 ||
        !shared_.empty() || is_balanced())
      return false;
    const ContiguousCut other(tiles_, kernel_.classes, ctas_, workload_.kv_heads, costs_,
                              cost_.profile != nullptr, memory_);
    if (other.makespan() >= schedule_.figures.makespan) return false;
    other.emit(schedule_, place_items(block, layout, other.stored_items()));
    return true;
  }

  void push(Run run, double cost, std::int64_t first_chunk, std::int64_t chunks) {
    run.cost = cost;
    run.first_chunk = static_cast<int>(first_chunk);
    run.chunks = static_cast<int>(chunks);
    runs_.push_back(run);
  }

  // Shared prefixes, then section by section longest first.
  void sort_runs() {
    const auto before = [](const Run& a, const Run& b) {
      if (a.prefix != b.prefix) return a.prefix;
      if (a.section != b.section) return a.section < b.section;
      if (a.cost != b.cost) return a.cost > b.cost;
      return std::tie(a.tile, a.first_chunk) < std::tie(b.tile, b.first_chunk);
    };
    // A decode of equal lengths is in order as it was listed; to sort it again was a tenth of a
    // plan.
    if (!std::is_sorted(runs_.begin(), runs_.end(), before))
      std::sort(runs_.begin(), runs_.end(), before);
  }

  // `head`: of lane 0.
  loom::WorkItem item(const Run& run, int head, int chunk) const {
    const QueryTile& tile = tiles_[run.tile];
    const std::int64_t begin = tile.kv_begin + chunk * run.chunk_tokens;
    loom::WorkItem item =
        work_item(tile, head, begin, std::min(begin + run.chunk_tokens, tile.kv_len));
    if (run.merge >= 0) {
      const int rows = kernel_.classes[tile.tile_class].q;
      item.partial_row = run.partial_row + (head * run.tile_chunks + chunk * lanes_) * rows;
      item.merge = run.merge + head;
    }
    return item;
  }

  // Longest first to the least loaded CTA, a gang at a time: a run has a multiple of kv_heads items
  // of one cost, so the CTAs of a gang always carry the same load, and whoever takes the first
  // lane's item is followed by the others in order.
  void assign() {
    order_.clear();
    order_.reserve(static_cast<std::size_t>(items_ / lanes_));
    LeastLoaded gangs(ctas_ / lanes_, memory_);
    double total = 0;
    for (const Run& run : runs_) {
      const std::int64_t items = std::int64_t{run.chunks} * workload_.kv_heads / lanes_;
      total += run.cost * static_cast<double>(items * lanes_);
      for (std::int64_t i = 0; i < items; ++i) {
        order_.push_back(gangs.take(run.cost));
      }
    }
    schedule_.figures.makespan = gangs.most();
    schedule_.figures.ideal = total / ctas_;
    schedule_.figures.items = static_cast<int>(items_);
    schedule_.stored_items = static_cast<int>(items_ / lanes_);
    schedule_.lanes = lanes_;
  }

  void scatter(std::span<loom::WorkItem> items) {
    std::pmr::vector<int> next = gang_begins(order_, ctas_ / lanes_, memory_);
    gang_queues(next, ctas_, lanes_, &schedule_.queues);
    std::size_t place = 0;
    for (const Run& run : runs_) {
      for (int head = 0; head < workload_.kv_heads; head += lanes_) {
        for (int chunk = run.first_chunk; chunk < run.first_chunk + run.chunks; ++chunk)
          items[next[order_[place++]]++] = item(run, head, chunk);
      }
    }
  }

  const Spec& spec_;
  const KernelChoice& kernel_;
  const int ctas_;
  const Workload& workload_;
  const std::span<const loom::RequestRow> rows_;
  const SharedRows& shared_;
  const Selection& selection_;
  const ScheduleChoice choice_;
  const CostModel& cost_;
  Memory* const memory_;
  std::pmr::vector<ClassCost> costs_;     // of the kernel's classes
  std::pmr::vector<std::int64_t> least_;  // least_chunk of each entry
  std::pmr::vector<QueryTile> tiles_;     // of all entries, in their order
  std::pmr::vector<Run> runs_;
  const int lanes_;
  std::pmr::vector<int> order_;  // the gang of each item
  std::int64_t items_ = 0;
  std::int64_t partial_rows_ = 0;
  Schedule schedule_;
};

}  // namespace

Result<Schedule> make_schedule(const Spec& spec, const KernelChoice& kernel, int ctas,
                               const PlanLayout& layout, const Workload& workload,
                               std::span<const loom::RequestRow> rows, const SharedRows& shared,
                               const Selection& selection, const CostModel& cost,
                               ScheduleChoice choice, std::vector<std::byte>& block,
                               Memory* memory) {
  return Scheduler(spec, kernel, ctas, workload, rows, shared, selection, cost, choice, memory)
      .run(layout, block);
}

}  // namespace attnloom
