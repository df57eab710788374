// SPDX-License-Identifier: Apache-2.0
#include "plan/prefix_tree.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>
#include <random>

#include "plan/share_rule.h"
#include "shared_fixture.h"

namespace attnloom {
namespace {

using test::Batch;
using test::Tables;

PrefixForest find(const Batch& batch, const std::vector<int>& pages) {
  return find_prefixes(batch.view(), pages);
}

std::vector<int> row_lengths(const Batch& batch) {
  std::vector<int> lengths;
  for (std::size_t r = 0; r + 1 < batch.kv_indptr.size(); ++r)
    lengths.push_back(batch.kv_indptr[r + 1] - batch.kv_indptr[r]);
  return lengths;
}

std::vector<int> members(const PrefixForest& forest, const PrefixNode& node) {
  std::vector<int> found(forest.order.begin() + node.first_member,
                         forest.order.begin() + node.member_end);
  std::sort(found.begin(), found.end());
  return found;
}

TEST_CASE("A tree of three levels, its requests in no order") {
  Batch batch;
  test::add_row(batch, {7, 8, 1, 2, 90}, 1);  // 0
  test::add_row(batch, {5, 91}, 1);           // 1
  test::add_row(batch, {7, 8, 3, 92}, 1);     // 2
  test::add_row(batch, {7, 8, 1, 2, 93}, 1);  // 3
  test::add_row(batch, {7, 8, 3, 94}, 1);     // 4
  test::add_row(batch, {8, 7, 1, 2}, 1);      // 5: the same pages elsewhere
  test::add_row(batch, {7, 8}, 1);            // 6: ends with the outermost prefix
  const PrefixForest forest = find(batch, row_lengths(batch));
  REQUIRE(forest.nodes.size() == 3);
  CHECK(forest.nodes[0].parent == -1);
  CHECK(forest.nodes[0].begin == 0);
  CHECK(forest.nodes[0].end == 2);
  CHECK(members(forest, forest.nodes[0]) == std::vector<int>{0, 2, 3, 4, 6});
  for (int n = 1; n < 3; ++n) {
    CHECK(forest.nodes[n].parent == 0);
    CHECK(forest.nodes[n].begin == 2);
  }
  const bool first = forest.nodes[1].end == 4;
  CHECK(members(forest, forest.nodes[first ? 1 : 2]) == std::vector<int>{0, 3});
  CHECK(members(forest, forest.nodes[first ? 2 : 1]) == std::vector<int>{2, 4});
  CHECK(forest.nodes[first ? 2 : 1].end == 3);
}

TEST_CASE("What is no whole page of every query's keys is not shared") {
  Batch batch;
  batch.add_paged(1, 33, 16).add_paged(17, 33, 16).add_paged(0, 33, 16).add_paged(1, 32, 16);
  Spec spec = test::paged_spec(16);
  CHECK(shareable_pages(spec, batch.view()) == std::pmr::vector<int>{2, 2, 0, 2});
  spec.variant.mask.causal = true;
  // The first of 17 queries sees 33 - 16 keys.
  CHECK(shareable_pages(spec, batch.view()) == std::pmr::vector<int>{2, 1, 0, 2});
  Batch same;
  test::add_row(same, {1, 2, 3}, 1);
  test::add_row(same, {1, 2, 3}, 1);
  CHECK(find(same, {2, 3}).nodes.at(0).end == 2);
  CHECK(find(same, {0, 3}).nodes.empty());
}

// The end of the deepest node that holds both.
int shared_pages(const PrefixForest& forest, int a, int b) {
  int pages = 0;
  for (const PrefixNode& node : forest.nodes) {
    const std::vector<int> in = members(forest, node);
    if (std::count(in.begin(), in.end(), a) > 0 && std::count(in.begin(), in.end(), b) > 0)
      pages = std::max(pages, node.end);
  }
  return pages;
}

TEST_CASE("Any two requests share in the tree what their rows share") {
  std::mt19937 random(Catch::rngSeed());
  for (int run = 0; run < 300; ++run) {
    const Batch batch = test::random_shared_batch(random, 1, 12);
    const std::vector<int> lengths = row_lengths(batch);
    const PrefixForest forest = find(batch, lengths);
    CHECK(forest.compared_pages <= 2 * batch.kv_indptr.back());
    for (std::size_t n = 0; n < forest.nodes.size(); ++n) {
      const PrefixNode& node = forest.nodes[n];
      CHECK(node.parent < static_cast<int>(n));
      CHECK(node.begin == (node.parent < 0 ? 0 : forest.nodes[node.parent].end));
      CHECK(node.end > node.begin);
    }
    for (int a = 0; a < std::ssize(lengths); ++a) {
      for (int b = 0; b < a; ++b) {
        int equal = 0;
        while (equal < std::min(lengths[a], lengths[b]) &&
               batch.page_indices[batch.kv_indptr[a] + equal] ==
                   batch.page_indices[batch.kv_indptr[b] + equal])
          ++equal;
        if (shared_pages(forest, a, b) != equal) FAIL("run " << run << ": " << a << ", " << b);
      }
    }
  }
}

TEST_CASE("The work is linear in the pages, and without sharing in the requests") {
  for (const int pages : {100, 1000, 10000}) {
    Batch chain;  // each shares one page less than the one before: as deep as there are requests
    Batch apart;
    for (int r = 0; r < 50; ++r) {
      std::vector<std::int32_t> row(static_cast<std::size_t>(pages));
      std::iota(row.begin(), row.end(), 0);
      row[pages - 1 - r] = 1000000 + r;
      test::add_row(chain, row, 1);
      std::iota(row.begin(), row.end(), (r + 1) * 100000);
      test::add_row(apart, row, 1);
    }
    CHECK(find(chain, row_lengths(chain)).nodes.size() == 49);
    CHECK(find(chain, row_lengths(chain)).compared_pages <= 2 * 50 * pages);
    CHECK(find(apart, row_lengths(apart)).compared_pages == 50);
    CHECK(find(apart, row_lengths(apart)).order.empty());
  }
}

// Head dim 64, bf16: 256 bytes a key; a row's state is 65 floats, twice, and its query 128 bytes.
TEST_CASE("A prefix is shared where it saves more bytes than its states cost") {
  Spec spec = test::paged_spec(16);
  const ShareRule rule(spec);
  CHECK(rule.key_bytes == 256);
  CHECK(rule.query_bytes == 128);
  CHECK(rule.state_bytes == 520);
  const std::vector<std::int64_t> rows{4};
  const auto worth = [&](int pages, int requests, int tile_rows) -> bool {
    const PrefixForest forest{
        .nodes = {{.end = pages, .member_end = requests}},
        .order = std::pmr::vector<int>(static_cast<std::size_t>(requests), 0)};
    return worth_sharing(rule, forest, rows, tile_rows, 16)[0];
  };
  // 2 requests of 4 rows: 8 * (128 + 2 * 520) + 128 * 256 = 42112 bytes, or 164.5 tokens.
  CHECK_FALSE(worth(10, 2, 64));
  CHECK(worth(11, 2, 64));
  // A hundred of them, two tiles: 98 readers less.
  CHECK(worth(4, 100, 256));
  CHECK_FALSE(worth(1, 100, 256));
  CHECK_FALSE(worth(1000, 2, 4));  // a tile each
}

TEST_CASE("A node that is left out leaves its pages to those below it") {
  // 100 requests share a page; each half of them goes on with 40 pages of its own.
  const PrefixForest forest{
      .nodes = {{.parent = -1, .begin = 0, .end = 1, .member_end = 100},
                {.parent = 0, .begin = 1, .end = 41, .member_end = 50},
                {.parent = 0, .begin = 1, .end = 41, .first_member = 50, .member_end = 100}},
      .order = std::pmr::vector<int>(100, 0)};
  const ShareRule rule(test::paged_spec(16));
  const std::vector<std::int64_t> rows{1};
  CHECK(worth_sharing(rule, forest, rows, 64, 16) == std::pmr::vector<bool>{false, true, true});
}

}  // namespace
}  // namespace attnloom
