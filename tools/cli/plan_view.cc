// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/plan_view.h"

#include <algorithm>

namespace attnloom::cli {
namespace {

// `entries`: those before it, which begin behind the prefixes that they have so far.
ViewEntry view_entry(const Json& row, std::vector<ViewEntry>& entries) {
  ViewEntry entry{.request = row["batch"],
                  .qo_len = row["qo_len"],
                  .q_first = row["q"][0],
                  .q_end = row["q"][1],
                  .kv_len = row["kv_len"],
                  .walk_len = row["walk_len"]};
  if (!row.contains("shared")) return entry;
  const Json& shared = row["shared"];
  entry.level = shared["level"];
  entry.members = shared["members"].get<std::vector<int>>();
  entry.merges = shared["merges"].get<std::vector<int>>();
  entry.walk_begin = shared["kv"][0];
  for (const int member : entry.members) entries[member].walk_begin = entry.walk_len;
  return entry;
}

ViewItem view_item(const Spec& spec, const PlanView& view, const Json& item,
                   const CostModel& cost) {
  ViewItem seen{.entry = item["request"],
                .q_row = item["q_row"],
                .kv_head = item["kv_head"],
                .keys = {item["kv"][0], item["kv"][1]},
                .tile_class = item["tile_class"],
                .merge = item["merge"]};
  const ViewEntry& entry = view.entries[seen.entry];
  seen.level = entry.level;
  const TileClass& tile = view.classes[seen.tile_class];
  seen.request = entry.request;
  seen.rows = std::min<std::int64_t>(tile.q, entry.q_end * view.group_size - seen.q_row);
  seen.cost = cost.of(tile.q, live_tokens(spec, view, seen.entry, seen.q_row, tile, seen.keys));
  return seen;
}

}  // namespace

KeyRange seen_keys(const Spec& spec, const ViewEntry& entry, std::int64_t window,
                   std::int64_t q_row, std::int64_t rows) {
  KeyRange keys{0, entry.walk_len};
  const bool causal = spec.variant.mask.causal;
  if (spec.layout.kv == KvLayout::kBsr || (!causal && window < 0)) return keys;
  const std::int64_t shift = entry.kv_len - entry.qo_len;
  const std::int64_t first = q_row / spec.group_size + shift;
  const std::int64_t last =
      std::min((q_row + rows - 1) / spec.group_size, entry.qo_len - 1) + shift;
  if (causal) keys.end = std::clamp<std::int64_t>(last + 1, 0, entry.walk_len);
  if (window >= 0) keys.begin = std::clamp<std::int64_t>(first - window, 0, keys.end);
  return keys;
}

std::int64_t live_tokens(const Spec& spec, const PlanView& view, int entry, std::int64_t q_row,
                         const TileClass& tile, const KeyRange& keys) {
  const KeyRange seen = seen_keys(spec, view.entries[entry], view.window, q_row, tile.q);
  const std::int64_t begin = std::max(keys.begin, seen.begin / tile.kv * tile.kv);
  return std::max<std::int64_t>(0, std::min(keys.end, seen.end) - begin);
}

std::span<const ViewEntry> own_entries(const PlanView& plan) {
  const auto end = std::find_if(plan.entries.begin(), plan.entries.end(),
                                [](const ViewEntry& entry) { return entry.level > 0; });
  return {plan.entries.begin(), end};
}

std::vector<int> merges_of(const PlanView& plan, const ViewItem& item) {
  if (item.merge < 0) return {};
  if (item.level == 0) return {item.merge};
  std::vector<int> merges = plan.entries[item.entry].merges;
  for (int& merge : merges) merge += item.kv_head;
  return merges;
}

PlanView view_plan(const Spec& spec, const Json& plan, const CostModel& cost) {
  PlanView view{.group_size = spec.group_size,
                .kv_heads = plan["heads"]["kv"],
                .window = plan["window_left"],
                .ideal = plan["figures"]["ideal"],
                .block_bytes = plan["block_bytes"]};
  for (const Json& tile : plan["kernel"]["classes"])
    view.classes.push_back({.q = tile["q"], .kv = tile["kv"], .stages = tile["stages"]});
  for (const Json& row : plan["requests"]) view.entries.push_back(view_entry(row, view.entries));
  for (const Json& queue : plan["queues"]) {
    std::vector<ViewItem>& items = view.queues.emplace_back();
    double end = 0;
    for (const Json& item : queue) {
      items.push_back(view_item(spec, view, item, cost));
      items.back().start = end;
      end += items.back().cost;
    }
    view.makespan = std::max(view.makespan, end);
  }
  return view;
}

}  // namespace attnloom::cli
