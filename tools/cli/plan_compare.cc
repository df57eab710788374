// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/plan_compare.h"

#include <algorithm>
#include <numeric>
#include <set>

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

ScheduleSummary own_schedule(const PlanView& plan) {
  ScheduleSummary own{
      .name = "attnloom", .longest = plan.makespan, .block_bytes = plan.block_bytes};
  std::set<int> merges;
  for (const auto& queue : plan.queues) {
    for (const ViewItem& item : queue) {
      own.mean += item.cost / static_cast<double>(plan.queues.size());
      ++own.items;
      if (item.merge >= 0) merges.insert(item.merge);
    }
  }
  own.split_tiles = std::ssize(merges);
  return own;
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
  for (const OutputTile& tile : tiles) tokens += plan.entries[tile.entry].walk_len;
  const std::int64_t share = divide_up(tokens, std::ssize(plan.queues));
  struct Chunk {
    double weight = 0;
    double cost = 0;
  };
  std::vector<Chunk> chunks;
  ScheduleSummary summary{.name = "algorithm_1"};
  for (const OutputTile& tile : tiles) {
    const TileClass& shape = plan.classes[tile.tile_class];
    const ViewEntry& entry = plan.entries[tile.entry];
    const std::int64_t chunk = std::max<std::int64_t>(divide_up(share, shape.kv), 1) * shape.kv;
    const std::int64_t count = std::max<std::int64_t>(divide_up(entry.walk_len, chunk), 1);
    for (std::int64_t i = 0; i < count; ++i) {
      const KeyRange keys{i * chunk, std::min((i + 1) * chunk, entry.walk_len)};
      chunks.push_back(
          {cost.of(shape.q, keys.end - keys.begin),
           cost.of(shape.q, live_tokens(spec, plan, tile.entry, tile.q_row, shape, keys))});
    }
    summary.split_tiles += count > 1 ? 1 : 0;
  }
  std::stable_sort(chunks.begin(), chunks.end(),
                   [](const Chunk& a, const Chunk& b) { return a.weight > b.weight; });
  CtaLoads ctas(plan.queues.size());
  for (const Chunk& chunk : chunks) ctas.take(chunk.weight, chunk.cost);
  summary.items = std::ssize(chunks);
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
                     padded("longest", 12) + padded("mean", 12) + padded("ratio", 8) +
                     padded("block bytes", 13) + "\n";
  for (const ScheduleSummary& one : schedules) {
    text += padded(one.name, 16) + padded(std::to_string(one.items), 9) +
            padded(std::to_string(one.split_tiles), 9) + padded(shown(one.longest), 12) +
            padded(shown(one.mean), 12) + padded(fixed(one.ratio(), 3), 8) +
            padded(one.block_bytes ? std::to_string(*one.block_bytes) : "-", 13) + "\n";
  }
  return text;
}

}  // namespace attnloom::cli
