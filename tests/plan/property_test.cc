// SPDX-License-Identifier: Apache-2.0
// Random batches against a naive schedule, and against what every plan must be.
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <numeric>
#include <random>
#include <tuple>

#include "plan_fixture.h"

namespace attnloom {
namespace {

using loom::WorkItem;
using test::Batch;
using test::Tables;

struct Case {
  Spec spec;
  std::vector<KernelChoice> kernels;
  Batch batch;
  int sm_count = 1;
};

int pick(std::mt19937& random, std::initializer_list<int> values) {
  return values.begin()[random() % values.size()];
}

std::vector<std::vector<int>> random_lists(std::mt19937& random, const Spec& spec, int qo_len,
                                           int kv_len) {
  std::vector<std::vector<int>> lists(
      static_cast<std::size_t>(block_row_count(spec.layout, qo_len)));
  for (std::vector<int>& list : lists) {
    for (int column = 0; column * spec.layout.block_columns < kv_len; ++column)
      if (random() % 3 == 0) list.push_back(column);
  }
  return lists;
}

Case random_case(std::mt19937& random) {
  Case result;
  const int group_size = pick(random, {1, 2, 4, 7});
  const int page_size = pick(random, {0, 1, 16, 256});
  result.spec =
      page_size == 0 ? test::ragged_spec(group_size) : test::paged_spec(page_size, group_size);
  const bool sparse = random() % 4 == 0;
  if (sparse) {
    result.spec =
        test::bsr_spec(pick(random, {1, 5, 16, 64}), pick(random, {1, 3, 64}), group_size);
    result.batch.block_indptr = {0};
  }
  switch (random() % 3) {
    case 0:
      result.kernels = test::one_kernel(pick(random, {16, 64, 128}), pick(random, {32, 64, 128}));
      break;
    case 1:
      result.kernels = test::auto_kernels();
      break;
    default:
      result.kernels = {test::kernel({{16, 64, 2}, {64, 32, 2}})};
  }
  result.sm_count = pick(random, {1, 2, 7, 132});
  result.batch.kv_heads = pick(random, {1, 2, 3, 8});
  result.batch.group_size = group_size;
  const int requests = static_cast<int>(random() % 9);
  const bool prefill = random() % 2 == 0;
  for (int r = 0; r < requests; ++r) {
    const int qo_len = prefill ? static_cast<int>(random() % 300) : pick(random, {0, 1, 1, 1, 3});
    const int kv_len = static_cast<int>(random() % pick(random, {1, 40, 600, 40000}));
    if (sparse)
      result.batch.add_blocks(qo_len, kv_len, random_lists(random, result.spec, qo_len, kv_len));
    else if (page_size == 0)
      result.batch.add(qo_len, kv_len);
    else
      result.batch.add_paged(qo_len, kv_len, page_size);
  }
  return result;
}

// First packed row of an entry of the request table, and behind the last.
std::pair<int, int> packed_range(const Case& c, const loom::RequestRow& row) {
  return {row.q_first * c.spec.group_size, row.q_end * c.spec.group_size};
}

// The shortest chunk worth a partial state (docs/PLANNER.md): 128 tokens, and in a decode's class
// no fewer than the keys whose bytes the merger reads as states.
double least_tokens(const Case& c, const TileClass& tile, int packed_rows, int kv_len) {
  if (tile.q > 16) return 128;
  const double key_bytes = 2.0 * (c.spec.head_dim.qk + c.spec.head_dim.vo);
  const double states = 4.0 * (c.spec.head_dim.vo + 1) * std::min(packed_rows, tile.q);
  return std::max(128.0, std::sqrt(kv_len * states / key_bytes));
}

// Algorithm 1 once more, as its text reads: every item made, sorted and given to the CTA found by
// looking at them all.
std::vector<std::vector<WorkItem>> naive_queues(const Case& c, const KernelChoice& kernel,
                                                const Tables& tables,
                                                const std::vector<int>& classes) {
  const int ctas = c.sm_count * kernel.min_ctas_per_sm;
  long long tokens = 0;
  for (std::size_t r = 0; r < tables.requests.size(); ++r) {
    const auto [first, rows] = packed_range(c, tables.requests[r]);
    for (int q = first; q < rows; q += kernel.classes[classes[r]].q)
      tokens += 1LL * tables.requests[r].walk_len * c.batch.kv_heads;
  }
  const long long share = (tokens + ctas - 1) / ctas;
  const int lanes = std::gcd(ctas, c.batch.kv_heads);
  std::vector<std::pair<double, WorkItem>> items;
  int partial_row = 0;
  int merge = 0;
  for (std::size_t r = 0; r < tables.requests.size(); ++r) {
    const TileClass tile = kernel.classes[classes[r]];
    const int kv_len = tables.requests[r].walk_len;
    const auto [first, rows] = packed_range(c, tables.requests[r]);
    long long chunk = tile.kv;
    while (chunk < share || chunk < least_tokens(c, tile, rows - first, kv_len)) chunk += tile.kv;
    const bool split = kv_len > chunk;
    for (int q = first; q < rows; q += tile.q) {
      for (int head = 0; head < c.batch.kv_heads; head += lanes) {
        for (long long begin = 0; begin == 0 || begin < kv_len; begin += chunk) {
          const int end = static_cast<int>(std::min<long long>(begin + chunk, kv_len));
          for (int lane = 0; lane < lanes; ++lane) {
            const WorkItem item{static_cast<int>(r),
                                q,
                                head + lane,
                                static_cast<int>(begin),
                                end,
                                classes[r],
                                split ? partial_row : -1,
                                split ? merge + lane : -1};
            items.push_back({1.0 * tile.q + static_cast<double>(end - begin), item});
            if (split) partial_row += tile.q;
          }
        }
        if (split) merge += lanes;
      }
    }
  }
  std::stable_sort(items.begin(), items.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<std::vector<WorkItem>> queues(ctas);
  std::vector<double> load(ctas, 0.0);
  for (const auto& [cost, item] : items) {
    const auto least = std::min_element(load.begin(), load.end()) - load.begin();
    queues[least].push_back(item);
    load[least] += cost;
  }
  return queues;
}

double queue_cost(const KernelChoice& kernel, const std::vector<WorkItem>& queue) {
  double cost = 0;
  for (const WorkItem& item : queue)
    cost += kernel.classes[item.tile_class].q + item.kv_end - item.kv_begin;
  return cost;
}

std::vector<int> classes_of(const Tables& tables) {
  std::vector<int> classes(tables.requests.size(), 0);
  for (const WorkItem& item : tables.items) classes[item.request] = item.tile_class;
  return classes;
}

// Every (packed row, head, KV token) of every request exactly once, and a merge for exactly the
// split tiles.
void check_coverage(const Case& c, const KernelChoice& kernel, const Tables& tables) {
  using Tile = std::tuple<int, int, int>;  // request, q_row, head
  std::map<Tile, std::map<int, WorkItem>> tiles;
  for (const WorkItem& item : tables.items) {
    const bool inserted =
        tiles[{item.request, item.q_row, item.kv_head}].emplace(item.kv_begin, item).second;
    REQUIRE(inserted);
  }
  std::vector<char> merged(tables.merges.size(), 0);
  std::vector<char> partial_rows;
  std::size_t wanted_tiles = 0;
  for (std::size_t r = 0; r < tables.requests.size(); ++r) {
    const auto [first, end] = packed_range(c, tables.requests[r]);
    const int rows = end - first;
    const int tile_rows = kernel.classes[classes_of(tables)[r]].q;
    wanted_tiles += static_cast<std::size_t>((rows + tile_rows - 1) / tile_rows * c.batch.kv_heads);
  }
  REQUIRE(tiles.size() == wanted_tiles);
  for (const auto& [tile, chunks] : tiles) {
    const TileClass shape = kernel.classes[chunks.begin()->second.tile_class];
    const loom::RequestRow request = tables.requests[std::get<0>(tile)];
    const auto [first, end_row] = packed_range(c, request);
    REQUIRE((std::get<1>(tile) - first) % shape.q == 0);
    REQUIRE(std::get<1>(tile) >= first);
    REQUIRE(std::get<1>(tile) < end_row);
    int next = 0;
    int index = 0;
    for (const auto& [begin, item] : chunks) {
      REQUIRE(begin == next);
      REQUIRE(begin % shape.kv == 0);
      REQUIRE((item.kv_end > begin || request.walk_len == 0));
      next = item.kv_end;
      if (chunks.size() == 1) {
        REQUIRE((item.partial_row == -1 && item.merge == -1));
        continue;
      }
      const loom::MergeTile& merge = tables.merges.at(static_cast<std::size_t>(item.merge));
      REQUIRE(merge.count == static_cast<int>(chunks.size()));
      const int lanes = tables.header.lanes;
      REQUIRE(item.partial_row == merge.partial_row + index++ * lanes * shape.q);
      const int lane = item.kv_head % lanes;  // a gang's first head is a multiple
      REQUIRE(merge.partial_row ==
              tables.merges.at(item.merge - lane).partial_row + lane * shape.q);
      const std::size_t end =
          static_cast<std::size_t>(item.partial_row) + static_cast<std::size_t>(shape.q);
      partial_rows.resize(std::max(partial_rows.size(), end), 0);
      for (std::size_t row = end - static_cast<std::size_t>(shape.q); row < end; ++row)
        REQUIRE(partial_rows[row]++ == 0);
      merged[item.merge] = 1;
    }
    REQUIRE(next == request.walk_len);
  }
  REQUIRE(std::count(merged.begin(), merged.end(), 1) == std::ssize(merged));
}

// The bounds that layout.cc proves.
void check_bounds(const Case& c, const Plan& plan, const Tables& tables) {
  const Result<PlanLayout> layout = plan_layout(c.spec, c.kernels, c.batch.limits(c.sm_count));
  REQUIRE(layout.ok());
  REQUIRE(std::ssize(tables.items) <= layout->max_items);
  REQUIRE(std::ssize(tables.requests) <= layout->max_rows);
  REQUIRE(std::ssize(tables.merges) <= plan.grid);
  REQUIRE(plan.grid <= layout->max_ctas);
  REQUIRE(plan.block.size() <= layout->plan_bytes);
  std::int64_t chunks = 0;
  std::int64_t rows = 0;
  for (const WorkItem& item : tables.items) {
    if (item.partial_row < 0) continue;
    ++chunks;
    rows = std::max<std::int64_t>(
        rows, item.partial_row + c.kernels[plan.kernel].classes[item.tile_class].q);
  }
  REQUIRE(chunks <= 2 * plan.grid);
  REQUIRE(rows <= layout->max_partial_rows);
}

TEST_CASE(
    "random batches: the naive schedule, full coverage, proven bounds, the same bytes twice") {
  std::mt19937 random(20);
  int split_plans = 0;
  int joint_plans = 0;
  int contiguous_plans = 0;
  std::vector<std::byte> storage(1 << 16, std::byte{0xff});
  for (int round = 0; round < 400; ++round) {
    CAPTURE(round);
    const Case c = random_case(random);
    const Plan plan = test::plan_or_fail(c.spec, c.kernels, c.batch, c.sm_count);
    const Tables tables = test::read_plan(plan);
    const KernelChoice& kernel = c.kernels[plan.kernel];
    check_coverage(c, kernel, tables);
    check_bounds(c, plan, tables);
    const auto queues = naive_queues(c, kernel, tables, classes_of(tables));
    REQUIRE(std::ssize(queues) == plan.grid);
    double naive_makespan = 0;
    double makespan = 0;
    for (int cta = 0; cta < plan.grid; ++cta) {
      const std::vector<WorkItem> queue(tables.items.begin() + tables.cta_begin[cta],
                                        tables.items.begin() + tables.cta_begin[cta + 1]);
      naive_makespan = std::max(naive_makespan, queue_cost(kernel, queues[cta]));
      makespan = std::max(makespan, queue_cost(kernel, queue));
      if (!plan.figures.contiguous) REQUIRE(queue == queues[cta]);
    }
    REQUIRE(makespan == plan.figures.makespan);
    if (plan.figures.contiguous) REQUIRE(makespan < naive_makespan);
    contiguous_plans += plan.figures.contiguous ? 1 : 0;
    // The memory of another plan, longer or shorter, shows nowhere.
    Result<Plan> again = make_plan(c.spec, c.kernels, c.batch.limits(c.sm_count), c.batch.view(), 1,
                                   {}, std::move(storage));
    REQUIRE(again.ok());
    REQUIRE(again->block == plan.block);
    storage = std::move(again->block);
    std::fill(storage.begin(), storage.end(), std::byte{0xff});
    split_plans += plan.figures.split_tiles > 0 ? 1 : 0;
    joint_plans += kernel.classes.size() > 1 ? 1 : 0;
  }
  CHECK(split_plans > 100);  // that the sweep reaches what it is for
  CHECK(joint_plans > 50);
  CHECK(contiguous_plans > 20);
  CHECK(contiguous_plans < 350);
}

TEST_CASE("the worst splits stay under the bounds") {
  // One tile over the share on each of C - 1 requests, and one as long as all of them.
  for (const int ctas : {1, 2, 3, 16, 132}) {
    for (const int length : {33, 64, 65, 1000}) {
      Case c{test::ragged_spec(), test::one_kernel(16, 32), {}, ctas};
      for (int r = 0; r + 1 < ctas; ++r) c.batch.add(1, length);
      c.batch.add(1, length * ctas);
      const Plan plan = test::plan_or_fail(c.spec, c.kernels, c.batch, ctas);
      check_bounds(c, plan, test::read_plan(plan));
    }
  }
}

}  // namespace
}  // namespace attnloom
