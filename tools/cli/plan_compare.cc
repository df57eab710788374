// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/plan_compare.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "tools/cli/peer_chunking.h"
#include "tools/cli/text_format.h"

namespace attnloom::cli {
namespace {

// One query tile of one KV head, which the plan may have split; in the paper's order.
struct OutputTile {
  int entry = 0;
  std::int64_t q_row = 0;
  int kv_head = 0;
  int tile_class = 0;
  auto operator<=>(const OutputTile&) const = default;
};

std::set<OutputTile> output_tiles(const PlanView& plan) {
  std::set<OutputTile> tiles;
  for (const auto& queue : plan.queues) {
    for (const ViewItem& item : queue)
      tiles.insert({item.entry, item.q_row, item.kv_head, item.tile_class});
  }
  return tiles;
}

std::int64_t prefix_tiles(const PlanView& plan) {
  return std::ssize(plan.entries) - std::ssize(own_entries(plan));
}

template <class Key>
std::int64_t split_tiles(const std::map<Key, std::int64_t>& states) {
  return std::count_if(states.begin(), states.end(),
                       [](const auto& tile) { return tile.second > 1; });
}

ScheduleSummary own_schedule(const PlanView& plan) {
  ScheduleSummary own{
      .name = "attnloom", .longest = plan.makespan, .block_bytes = plan.block_bytes};
  std::map<int, std::int64_t> states;  // of each merge
  for (const auto& queue : plan.queues) {
    for (const ViewItem& item : queue) {
      own.mean += item.cost / static_cast<double>(plan.queues.size());
      ++own.items;
      for (const int merge : merges_of(plan, item)) ++states[merge];
    }
  }
  own.split_tiles = split_tiles(states);
  own.prefix_tiles = prefix_tiles(plan);
  return own;
}

std::string known(const std::optional<std::int64_t>& value) {
  return value ? std::to_string(*value) : "-";
}

}  // namespace

double CtaLoads::longest() const {
  return cost_.empty() ? 0 : *std::max_element(cost_.begin(), cost_.end());
}

double CtaLoads::mean() const {
  const double total = std::accumulate(cost_.begin(), cost_.end(), 0.0);
  return cost_.empty() ? 0 : total / static_cast<double>(cost_.size());
}

ScheduleSummary paper_schedule(const Spec& spec, const PlanView& plan, const CostModel& cost) {
  const std::set<OutputTile> tiles = output_tiles(plan);
  std::int64_t tokens = 0;
  for (const OutputTile& tile : tiles)
    tokens += plan.entries[tile.entry].walk_len - plan.entries[tile.entry].walk_begin;
  const std::int64_t share = divide_up(tokens, std::ssize(plan.queues));
  struct Chunk {
    double weight = 0;
    double cost = 0;
  };
  std::vector<Chunk> chunks;
  std::map<std::tuple<int, std::int64_t, int>, std::int64_t> states;  // entry, row, head
  ScheduleSummary summary{.name = "algorithm_1", .prefix_tiles = prefix_tiles(plan)};
  for (const OutputTile& tile : tiles) {
    const TileClass& shape = plan.classes[tile.tile_class];
    const ViewEntry& entry = plan.entries[tile.entry];
    const std::int64_t chunk = std::max<std::int64_t>(divide_up(share, shape.kv), 1) * shape.kv;
    const std::int64_t count =
        std::max<std::int64_t>(divide_up(entry.walk_len - entry.walk_begin, chunk), 1);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t begin = entry.walk_begin + i * chunk;
      const KeyRange keys{begin, std::min(begin + chunk, entry.walk_len)};
      chunks.push_back(
          {cost.of(shape.q, keys.end - keys.begin),
           cost.of(shape.q, live_tokens(spec, plan, tile.entry, tile.q_row, shape, keys))});
    }
    if (entry.level == 0) states[{tile.entry, tile.q_row, tile.kv_head}] += count;
    // A member of a prefix has all its rows in one tile.
    for (const int member : entry.members) states[{member, 0, tile.kv_head}] += count;
  }
  std::stable_sort(chunks.begin(), chunks.end(),
                   [](const Chunk& a, const Chunk& b) { return a.weight > b.weight; });
  CtaLoads ctas(plan.queues.size());
  for (const Chunk& chunk : chunks) ctas.take(chunk.weight, chunk.cost);
  summary.items = std::ssize(chunks);
  summary.split_tiles = split_tiles(states);
  summary.longest = ctas.longest();
  summary.mean = ctas.mean();
  return summary;
}

std::vector<ScheduleSummary> compare_schedules(const Spec& spec, const PlanView& plan,
                                               const CostModel& cost) {
  return {paper_schedule(spec, plan, cost), peer_chunking(spec, plan, cost), own_schedule(plan)};
}

Json comparison_to_json(const std::vector<ScheduleSummary>& schedules, std::size_t ctas) {
  Json list = Json::array();
  for (const ScheduleSummary& one : schedules) {
    list.push_back({{"name", one.name},
                    {"items", one.items},
                    {"split_tiles", one.split_tiles},
                    {"prefix_tiles", one.prefix_tiles ? Json(*one.prefix_tiles) : Json()},
                    {"longest", one.longest},
                    {"mean", one.mean},
                    {"ratio", one.ratio()},
                    {"block_bytes", one.block_bytes ? Json(*one.block_bytes) : Json()}});
  }
  return {{"grid", ctas}, {"schedules", std::move(list)}};
}

std::string comparison_to_text(const std::vector<ScheduleSummary>& schedules, std::size_t ctas) {
  std::string text = std::to_string(ctas) + " CTAs, costs in units of the plan's model\n" +
                     padded("schedule", 16) + padded("items", 9) + padded("splits", 9) +
                     padded("prefixes", 10) + padded("longest", 12) + padded("mean", 12) +
                     padded("ratio", 8) + padded("block bytes", 13) + "\n";
  bool prefixes = false;
  for (const ScheduleSummary& one : schedules) {
    text += padded(one.name, 16) + padded(std::to_string(one.items), 9) +
            padded(std::to_string(one.split_tiles), 9) + padded(known(one.prefix_tiles), 10) +
            padded(shown(one.longest), 12) + padded(shown(one.mean), 12) +
            padded(fixed(one.ratio(), 3), 8) + padded(known(one.block_bytes), 13) + "\n";
    prefixes = prefixes || one.prefix_tiles.value_or(0) > 0;
  }
  for (const ScheduleSummary& one : schedules) {
    if (prefixes && !one.prefix_tiles)
      text += one.name + " has no sharing: each request reads its prefix for itself\n";
  }
  return text;
}

}  // namespace attnloom::cli
