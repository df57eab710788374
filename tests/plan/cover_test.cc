// SPDX-License-Identifier: Apache-2.0
// What every plan owes, read from the plan as people see it (plan_to_json): each query tile meets
// each key that it may see exactly once, and partial states stay within the workspace. Batches of
// extremes: no tokens, one, a million; groups of 7; pages of 1 and 256; odd blocks; windows; every
// order of the requests.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <tuple>

#include "plan_fixture.h"

namespace attnloom {
namespace {

using test::Batch;

struct Entry {
  int batch, qo_len, kv_len, q_first, q_end, walk_len;
};

struct Item {
  std::int64_t begin, end, partial_row;
  int merge, tile_class;
};

using Tile = std::tuple<int, int, int>;  // entry, KV head, first packed row

struct Seen {
  std::vector<Entry> entries;
  std::vector<TileClass> classes;
  std::map<Tile, std::vector<Item>> tiles;  // items by their first key
};

Seen read(const Json& json) {
  Seen seen;
  for (const Json& row : json["requests"])
    seen.entries.push_back(
        {row["batch"], row["qo_len"], row["kv_len"], row["q"][0], row["q"][1], row["walk_len"]});
  for (const Json& tile : json["kernel"]["classes"])
    seen.classes.push_back({tile["q"], tile["kv"], tile["stages"]});
  for (const Json& queue : json["queues"])
    for (const Json& item : queue)
      seen.tiles[{item["request"], item["kv_head"], item["q_row"]}].push_back(
          {item["kv"][0], item["kv"][1], item["partial_row"], item["merge"], item["tile_class"]});
  for (auto& [tile, items] : seen.tiles)
    std::sort(items.begin(), items.end(),
              [](const Item& a, const Item& b) { return a.begin < b.begin; });
  return seen;
}

struct Masks {
  bool causal = false;
  int window_left = -1;
};

// The keys that some row of [first, end) packed rows may see. Rows of blocks count along their
// walk, where masks by position say nothing.
std::pair<std::int64_t, std::int64_t> visible(const Spec& spec, const Entry& entry,
                                              const Masks& masks, int first, int end) {
  if (spec.layout.kv == KvLayout::kBsr) return {0, entry.walk_len};
  const std::int64_t shift = std::int64_t{entry.kv_len} - entry.qo_len;
  const std::int64_t last = (end - 1) / spec.group_size + shift;
  std::int64_t low = 0;
  if (masks.window_left >= 0)
    low = std::max<std::int64_t>(0, first / spec.group_size + shift - masks.window_left);
  const std::int64_t high =
      masks.causal ? std::min<std::int64_t>(last + 1, entry.kv_len) : entry.kv_len;
  return {low, std::max(low, high)};
}

void check_tiles(const Spec& spec, int kv_heads, const Masks& masks, const Seen& seen) {
  std::size_t wanted = 0;
  for (int e = 0; e < static_cast<int>(seen.entries.size()); ++e) {
    const Entry& entry = seen.entries[static_cast<std::size_t>(e)];
    const int first = entry.q_first * spec.group_size;
    const int end = entry.q_end * spec.group_size;
    if (first == end) continue;
    const auto any = seen.tiles.find({e, 0, first});
    REQUIRE(any != seen.tiles.end());
    const TileClass shape = seen.classes.at(static_cast<std::size_t>(any->second[0].tile_class));
    for (int head = 0; head < kv_heads; ++head) {
      for (int q = first; q < end; q += shape.q, ++wanted) {
        const auto tile = seen.tiles.find({e, head, q});
        REQUIRE(tile != seen.tiles.end());
        const auto [low, high] = visible(spec, entry, masks, q, std::min(q + shape.q, end));
        std::int64_t next = low;
        std::int64_t behind = 0;
        for (const Item& item : tile->second) {
          CAPTURE(e, head, q, item.begin, item.end, low, high);
          REQUIRE(item.begin >= behind);                        // no key twice
          REQUIRE((item.begin <= next || item.begin >= high));  // none left out
          REQUIRE(item.begin % shape.kv == 0);
          REQUIRE(item.end >= item.begin);
          REQUIRE(item.end <= entry.walk_len);
          behind = item.end;
          next = std::max(next, item.end);
        }
        REQUIRE(next >= high);
      }
    }
  }
  REQUIRE(seen.tiles.size() == wanted);  // and no tile besides
}

// The table says of each request what the batch says, and its entries are its query tokens in
// order.
void check_entries(const Spec& spec, const Batch& batch, const Seen& seen) {
  std::size_t e = 0;
  std::size_t row = 0;  // of blocks
  for (int r = 0; r + 1 < static_cast<int>(batch.qo_indptr.size()); ++r) {
    const int qo_len = batch.qo_indptr[r + 1] - batch.qo_indptr[r];
    std::int64_t kv_len = batch.kv_indptr[r + 1] - batch.kv_indptr[r];
    if (spec.layout.kv == KvLayout::kPaged && kv_len > 0)
      kv_len = (kv_len - 1) * spec.layout.page_size + batch.last_page_len[r];
    const bool sparse = spec.layout.kv == KvLayout::kBsr;
    const int rows = sparse ? spec.layout.block_rows : qo_len;
    for (int q = 0; q < qo_len || (q == 0 && !sparse); q += std::max(1, rows), ++e) {
      const Entry& entry = seen.entries.at(e);
      CAPTURE(r, e, q);
      REQUIRE(entry.batch == r);
      REQUIRE(entry.qo_len == qo_len);
      REQUIRE(entry.kv_len == kv_len);
      REQUIRE(entry.q_first == q);
      REQUIRE(entry.q_end == std::min(q + rows, qo_len));
      if (sparse) {
        const int blocks = batch.block_indptr[row + 1] - batch.block_indptr[row];
        REQUIRE(entry.walk_len == blocks * spec.layout.block_columns);
        ++row;
      } else {
        REQUIRE(entry.walk_len == kv_len);
      }
    }
  }
  REQUIRE(e == seen.entries.size());
}

void check_partials(const Spec& spec, const PlanLayout& layout, const Seen& seen) {
  std::vector<std::pair<std::int64_t, std::int64_t>> rows;
  std::set<int> merges;
  for (const auto& [tile, items] : seen.tiles) {
    if (items.size() == 1) {
      REQUIRE(items[0].partial_row == -1);
      REQUIRE(items[0].merge == -1);
      continue;
    }
    REQUIRE(merges.insert(items[0].merge).second);
    REQUIRE(items[0].merge >= 0);
    REQUIRE(items[0].merge < layout.max_merges);
    for (const Item& item : items) {
      REQUIRE(item.merge == items[0].merge);
      REQUIRE(item.partial_row >= 0);
      rows.emplace_back(
          item.partial_row,
          item.partial_row + seen.classes[static_cast<std::size_t>(item.tile_class)].q);
    }
  }
  std::sort(rows.begin(), rows.end());
  for (std::size_t i = 1; i < rows.size(); ++i) REQUIRE(rows[i - 1].second <= rows[i].first);
  const auto used = static_cast<std::size_t>(rows.empty() ? 0 : rows.back().second);
  REQUIRE(layout.partial_o_offset + used * static_cast<std::size_t>(spec.head_dim.vo) * 4 <=
          layout.partial_lse_offset);
  REQUIRE(layout.partial_lse_offset + used * 4 <= layout.workspace_bytes);
}

struct Checked {
  std::int64_t splits = 0;
  double ideal = 0;
};

Checked check_plan(const Spec& spec, const std::vector<KernelChoice>& kernels, const Batch& batch,
                   int sm_count) {
  const PlanLimits limits = batch.limits(sm_count);
  const Result<PlanLayout> layout = plan_layout(spec, kernels, limits);
  REQUIRE(layout.ok());
  const Result<Plan> plan = make_plan(spec, kernels, limits, batch.view(), 1);
  INFO(plan.status().to_string());
  REQUIRE(plan.ok());
  REQUIRE(plan->block.size() <= layout->plan_bytes);
  REQUIRE(layout->plan_bytes <= layout->partial_o_offset);
  const Seen seen = read(plan_to_json(spec, kernels, *plan));
  check_entries(spec, batch, seen);
  check_tiles(spec, batch.kv_heads, {spec.variant.mask.causal, *spec.variant.mask.window_left},
              seen);
  check_partials(spec, *layout, seen);
  return {plan->figures.split_tiles, plan->figures.ideal};
}

int pick(std::mt19937& random, std::initializer_list<int> values) {
  return values.begin()[random() % values.size()];
}

// One request, before it has a place in the batch.
struct Request {
  int qo_len, kv_len;
  std::vector<std::vector<int>> lists;
};

Batch batch_of(const Spec& spec, int kv_heads, const std::vector<Request>& requests,
               const std::vector<int>& order) {
  Batch batch;
  batch.kv_heads = kv_heads;
  batch.group_size = spec.group_size;
  if (spec.layout.kv == KvLayout::kBsr) batch.block_indptr = {0};
  for (const int r : order) {
    const Request& request = requests[static_cast<std::size_t>(r)];
    if (spec.layout.kv == KvLayout::kBsr)
      batch.add_blocks(request.qo_len, request.kv_len, request.lists);
    else if (spec.layout.kv == KvLayout::kPaged)
      batch.add_paged(request.qo_len, request.kv_len, spec.layout.page_size);
    else
      batch.add(request.qo_len, request.kv_len);
  }
  return batch;
}

Spec random_spec(std::mt19937& random) {
  const int group = pick(random, {1, 4, 7});
  Spec spec;
  switch (random() % 4) {
    case 0:
      spec = test::ragged_spec(group);
      break;
    case 1:
      spec = test::bsr_spec(pick(random, {1, 3, 7, 100}), pick(random, {1, 5, 63}), group);
      break;
    default:
      spec = test::paged_spec(pick(random, {1, 16, 256}), group);
  }
  spec.variant.mask.causal = random() % 2 == 0;
  spec.variant.mask.window_left = pick(random, {-1, -1, 0, 127, 1 << 20});
  return spec;
}

Request random_request(std::mt19937& random, const Spec& spec) {
  constexpr int kMillion = 1 << 20;
  Request request;
  request.qo_len = pick(random, {0, 1, 1, 1, 2, 15, 17, 300});
  const bool sparse = spec.layout.kv == KvLayout::kBsr;
  request.kv_len = pick(random, {0, 1, 1, 16, 255, 257, 5000, sparse ? 9999 : kMillion});
  if (!sparse) return request;
  request.lists.resize(static_cast<std::size_t>(block_row_count(spec.layout, request.qo_len)));
  for (std::vector<int>& list : request.lists)
    for (int column = 0; column * spec.layout.block_columns < request.kv_len; ++column)
      if (random() % 5 == 0) list.push_back(column);
  return request;
}

TEST_CASE("batches of extremes in every order: each key once, partial states within the bound") {
  std::mt19937 random(47);
  int split_plans = 0;
  for (int round = 0; round < 120; ++round) {
    CAPTURE(round);
    const Spec spec = random_spec(random);
    std::vector<Request> requests;
    for (int r = static_cast<int>(random() % 8); r > 0; --r)
      requests.push_back(random_request(random, spec));
    std::vector<int> order(requests.size());
    std::iota(order.begin(), order.end(), 0);
    const int kv_heads = pick(random, {1, 2, 3, 8});
    const int sm_count = pick(random, {1, 7, 132});
    const std::vector<KernelChoice> kernels =
        random() % 2 == 0 ? test::auto_kernels()
                          : test::one_kernel(pick(random, {16, 64, 128}), pick(random, {64, 128}));
    double ideal = -1;
    for (int shuffle = 0; shuffle < 3; ++shuffle) {
      const Checked checked =
          check_plan(spec, kernels, batch_of(spec, kv_heads, requests, order), sm_count);
      split_plans += checked.splits > 0 ? 1 : 0;
      if (shuffle > 0) REQUIRE(checked.ideal == Approx(ideal).epsilon(1e-9));
      ideal = checked.ideal;
      std::shuffle(order.begin(), order.end(), random);
    }
  }
  CHECK(split_plans > 100);  // of 360
}

TEST_CASE("more than 2^31 tokens x heads x dim, on few CTAs and on many") {
  // 256 requests of 2^20 keys, 8 heads, 128 numbers each: 2^38.
  for (const int sm_count : {1, 132}) {
    for (const int page_size : {1, 256}) {
      Spec spec = test::paged_spec(page_size, 7);
      spec.head_dim = {128, 128};
      Batch batch;
      batch.kv_heads = 8;
      batch.group_size = 7;
      for (int r = 0; r < 256; ++r) batch.add_paged(1, 1 << 20, page_size);
      check_plan(spec, test::one_kernel(16, 128), batch, sm_count);
    }
  }
  // One of the longest requests there are beside one of a single key.
  Batch batch;
  batch.kv_heads = 3;
  batch.add(1, 1).add(1, 2147483000);
  check_plan(test::ragged_spec(), test::auto_kernels(), batch, 132);
  Batch reversed;
  reversed.kv_heads = 3;
  reversed.add(1, 2147483000).add(1, 1);
  check_plan(test::ragged_spec(), test::auto_kernels(), reversed, 132);
}

TEST_CASE("a prefill of a million tokens of 7 heads, in full and in a window") {
  for (const int window_left : {-1, 4095}) {
    Spec spec = test::ragged_spec(7);
    spec.variant.mask.causal = true;
    spec.variant.mask.window_left = window_left;
    Batch batch;
    batch.group_size = 7;
    batch.add(1, 1).add(1 << 20, 1 << 20).add(0, 5);
    check_plan(spec, test::auto_kernels(), batch, 132);
  }
}

}  // namespace
}  // namespace attnloom
