// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/peer_chunking.h"

#include <algorithm>
#include <vector>

namespace attnloom::cli {
namespace {

constexpr std::int64_t kLeastChunk = 128;  // tokens

struct Batch {
  std::int64_t tile_q = 16;         // packed rows
  std::int64_t page = 1;            // tokens
  std::vector<std::int64_t> tiles;  // of query rows, an entry
  std::vector<std::int64_t> pages;  // of keys, as far as a window lets them matter

  // Work of one KV head in chunks of so many pages.
  std::int64_t items(std::int64_t chunk) const {
    std::int64_t count = 0;
    for (std::size_t i = 0; i < tiles.size(); ++i)
      count += tiles[i] * std::max<std::int64_t>(divide_up(pages[i], chunk), 1);
    return count;
  }
};

std::int64_t packed_rows(const PlanView& plan, const ViewEntry& entry) {
  return (entry.q_end - entry.q_first) * plan.group_size;
}

// By the average of the batch: one long prompt does not move it, and many rows of one token do.
std::int64_t query_tile(const Spec& spec, const PlanView& plan) {
  std::int64_t rows = 0;
  const std::span<const ViewEntry> entries = own_entries(plan);
  for (const ViewEntry& entry : entries) rows += packed_rows(plan, entry);
  const std::int64_t average =
      entries.empty() ? 0 : rows / static_cast<std::int64_t>(entries.size());
  if (average > 64 && spec.head_dim.vo < 256) return 128;
  return average > 16 ? 64 : 16;
}

Batch make_batch(const Spec& spec, const PlanView& plan) {
  Batch batch{.tile_q = query_tile(spec, plan)};
  if (spec.layout.kv == KvLayout::kPaged) batch.page = spec.layout.page_size;
  if (spec.layout.kv == KvLayout::kBsr) batch.page = spec.layout.block_columns;
  for (const ViewEntry& entry : own_entries(plan)) {
    std::int64_t keys = entry.walk_len;
    if (plan.window >= 0) keys = std::min(keys, plan.window + batch.tile_q);
    batch.tiles.push_back(divide_up(packed_rows(plan, entry), batch.tile_q));
    batch.pages.push_back(divide_up(keys, batch.page));
  }
  return batch;
}

// The shortest chunk, in pages, whose items are no more than `budget` on one KV head; the longest
// list of pages where none is: then nothing is split.
std::int64_t chunk_pages(const Batch& batch, std::int64_t budget) {
  std::int64_t low = std::max<std::int64_t>(kLeastChunk / batch.page, 1);
  std::int64_t high = low;
  for (const std::int64_t pages : batch.pages) high = std::max(high, pages);
  while (low < high) {
    const std::int64_t middle = (low + high) / 2;
    if (batch.items(middle) > budget)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

// Tables of int32 on borders of 16 bytes: request, query tile and KV tile of each item, output
// offsets, the chunk; with splits also the offsets of each row's states and a byte an item.
std::int64_t table_bytes(std::int64_t items, std::int64_t batch, std::int64_t rows, bool split) {
  const auto table = [](std::int64_t bytes) { return divide_up(bytes, 16) * 16; };
  const std::int64_t common = 3 * table(4 * items) + table(4 * (batch + 1)) + table(4);
  return split ? common + table(4 * (rows + 1)) + table(items) : common;
}

}  // namespace

ScheduleSummary peer_chunking(const Spec& spec, const PlanView& plan, const CostModel& cost) {
  const Batch batch = make_batch(spec, plan);
  const std::int64_t chunk = chunk_pages(batch, std::ssize(plan.queues) / plan.kv_heads);
  const TileClass shape{.q = static_cast<int>(batch.tile_q), .kv = 1};
  std::vector<double> costs;  // of one KV head, in the order of the grid
  ScheduleSummary summary{.name = "flashinfer_like"};
  std::int64_t rows = 0;
  for (int i = 0; i < std::ssize(batch.tiles); ++i) {
    rows += plan.entries[i].q_end - plan.entries[i].q_first;
    const std::int64_t chunks = std::max<std::int64_t>(divide_up(batch.pages[i], chunk), 1);
    if (chunks > 1) summary.split_tiles += batch.tiles[i] * plan.kv_heads;
    for (std::int64_t tile = 0; tile < batch.tiles[i]; ++tile) {
      const std::int64_t q_row = plan.entries[i].q_first * plan.group_size + tile * batch.tile_q;
      // Chunks count from where the tile's window begins.
      const KeyRange seen = seen_keys(spec, plan.entries[i], plan.window, q_row, batch.tile_q);
      const std::int64_t origin = plan.window >= 0 ? seen.begin : 0;
      for (std::int64_t c = 0; c < chunks; ++c) {
        const std::int64_t begin = origin + c * chunk * batch.page;
        costs.push_back(cost.of(batch.tile_q, live_tokens(spec, plan, i, q_row, shape,
                                                          {begin, begin + chunk * batch.page})));
      }
    }
  }
  CtaLoads ctas(plan.queues.size());
  for (int head = 0; head < plan.kv_heads; ++head) {
    for (const double one : costs) ctas.take(one, one);
  }
  summary.items = std::ssize(costs) * plan.kv_heads;
  summary.longest = ctas.longest();
  summary.mean = ctas.mean();
  summary.block_bytes =
      table_bytes(std::ssize(costs), std::ssize(batch.tiles), rows, summary.split_tiles > 0);
  return summary;
}

}  // namespace attnloom::cli
