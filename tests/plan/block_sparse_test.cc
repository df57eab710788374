// SPDX-License-Identifier: Apache-2.0
// Each converter against the dense mask that its format means, over random small batches.
#include <algorithm>
#include <numeric>

#include "dense_mask.h"

namespace attnloom {
namespace {

using test::below;
using test::Bytes;
using test::check_means;
using test::Ints;
using test::sparse_or_fail;

std::size_t cell(std::int64_t token, std::int64_t keys, std::int64_t key) {
  return static_cast<std::size_t>(token * keys + key);
}

TEST_CASE("ragged arrays: every query sees its request's keys") {
  std::mt19937 random(1);
  for (int round = 0; round < 100; ++round) {
    const int batch = below(random, 5);
    const Ints qo = test::random_indptr(random, batch, 9);
    const Ints kv = test::random_indptr(random, batch, 20);
    std::size_t cells = 0;
    for (int r = 0; r < batch; ++r)
      cells += static_cast<std::size_t>((qo[r + 1] - qo[r]) * (kv[r + 1] - kv[r]));
    const BlockSparse sparse = sparse_or_fail(from_ragged({qo, kv}, test::random_block(random)));
    check_means(sparse, Bytes(cells, 1));
    CHECK_FALSE(needs_custom_mask(sparse));
  }
}

struct RandomPages {
  int page_size;
  int pool;
  Ints qo{0}, kv{0}, indices, last;

  explicit RandomPages(std::mt19937& random)
      : page_size(1 + below(random, 5)), pool(1 + below(random, 12)) {
    Ints shuffled(static_cast<std::size_t>(pool));
    std::iota(shuffled.begin(), shuffled.end(), 0);
    for (int r = below(random, 5); r > 0; --r) {
      qo.push_back(qo.back() + below(random, 6));
      std::shuffle(shuffled.begin(), shuffled.end(), random);
      const int count = below(random, std::min(pool, 5) + 1);  // others of the batch share pages
      indices.insert(indices.end(), shuffled.begin(), shuffled.begin() + count);
      kv.push_back(static_cast<std::int32_t>(indices.size()));
      last.push_back(count == 0 ? 0 : 1 + below(random, page_size));
    }
  }
  PageTable view(bool causal) const { return {qo, kv, indices, last, page_size, pool, causal}; }
  int batch() const { return static_cast<int>(qo.size()) - 1; }
  // Rows of the pool that hold the request's keys, in the order of its tokens.
  std::vector<int> keys(int request) const {
    std::vector<int> rows;
    for (int i = kv[request]; i < kv[request + 1]; ++i)
      for (int s = 0; s < (i + 1 == kv[request + 1] ? last[request] : page_size); ++s)
        rows.push_back(indices[i] * page_size + s);
    return rows;
  }
};

// Query token i at the end of its request keeps the first keys, as the causal mask says.
bool keeps(bool causal, int i, int qo_len, std::size_t kv_len, std::size_t place) {
  return !causal || static_cast<long>(place) <= static_cast<long>(kv_len) - qo_len + i;
}

TEST_CASE("page tables: every query sees the slots of its request's pages") {
  std::mt19937 random(2);
  int with_bits = 0;
  for (int round = 0; round < 300; ++round) {
    const RandomPages pages(random);
    const bool causal = round % 2 == 1;
    const int columns = pages.pool * pages.page_size;
    Bytes dense(static_cast<std::size_t>(pages.qo.back() * columns), 0);
    for (int r = 0; r < pages.batch(); ++r) {
      const std::vector<int> rows = pages.keys(r);
      for (int i = pages.qo[r]; i < pages.qo[r + 1]; ++i)
        for (std::size_t place = 0; place < rows.size(); ++place)
          if (keeps(causal, i - pages.qo[r], pages.qo[r + 1] - pages.qo[r], rows.size(), place))
            dense[cell(i, columns, rows[place])] = 1;
    }
    const BlockSize block = round % 3 == 0 ? BlockSize{} : test::random_block(random);
    const BlockSparse sparse = sparse_or_fail(from_pages(pages.view(causal), block));
    check_means(sparse, dense);
    if (round % 3 == 0) {
      CHECK(pages.page_size % sparse.block.columns == 0);
      if (!causal) CHECK_FALSE(needs_custom_mask(sparse));  // no block with slots of nobody
    }
    with_bits += needs_custom_mask(sparse) ? 1 : 0;
  }
  CHECK(with_bits > 50);
}

TEST_CASE("a page table in blocks of its pages lists the pages") {
  // Pages {3, 5, 1} and {2}, whole: the lists are the table's own, sorted.
  const Ints qo{0, 1, 2}, kv{0, 3, 4}, indices{3, 5, 1, 2}, last{16, 16};
  const BlockSparse sparse = sparse_or_fail(from_pages({qo, kv, indices, last, 16, 6}, {}));
  CHECK(sparse.indptr == Ints{0, 3, 4});
  CHECK(sparse.indices == Ints{1, 3, 5, 2});
  CHECK(sparse.qo_indptr == Ints{0, 2});
  CHECK(sparse.kv_indptr == Ints{0, 96});
  CHECK_FALSE(needs_custom_mask(sparse));
}

TEST_CASE("prefix trees: a request sees the tokens from its root down") {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    const int nodes = 1 + below(random, 8);
    Ints name(static_cast<std::size_t>(nodes));  // a parent may have the larger number
    std::iota(name.begin(), name.end(), 0);
    std::shuffle(name.begin(), name.end(), random);
    Ints parent(name.size(), -1), begin(name.size()), count(name.size());
    int keys = below(random, 3);  // rows of the store that no node has
    for (int n = 0; n < nodes; ++n) {
      if (n > 0) parent[name[n]] = below(random, 4) == 0 ? -1 : name[below(random, n)];
      begin[name[n]] = keys;
      count[name[n]] = below(random, 7);
      keys += count[name[n]] + below(random, 2);
    }
    const int batch = below(random, 5);
    const Ints qo = test::random_indptr(random, batch, 4);
    Ints node;
    for (int r = 0; r < batch; ++r) node.push_back(below(random, nodes));
    const bool causal = round % 2 == 1;
    Bytes dense(static_cast<std::size_t>(qo.back() * keys), 0);
    for (int r = 0; r < batch; ++r) {
      std::vector<int> rows;  // root first
      for (int n = node[r]; n >= 0; n = parent[n])
        for (int k = count[n] - 1; k >= 0; --k) rows.insert(rows.begin(), begin[n] + k);
      for (int i = qo[r]; i < qo[r + 1]; ++i)
        for (std::size_t place = 0; place < rows.size(); ++place)
          if (keeps(causal, i - qo[r], qo[r + 1] - qo[r], rows.size(), place))
            dense[cell(i, keys, rows[place])] = 1;
    }
    const PrefixTree tree{qo, node, parent, begin, count, keys, causal};
    check_means(sparse_or_fail(from_prefix_tree(tree, test::random_block(random))), dense);
  }
}

TEST_CASE("draft trees: context, ancestors and itself") {
  std::mt19937 random(4);
  for (int round = 0; round < 200; ++round) {
    const Ints drafts = test::random_indptr(random, below(random, 4), 9);
    Ints parent, context;
    Bytes dense;
    for (std::size_t r = 0; r + 1 < drafts.size(); ++r) {
      const int n = drafts[r + 1] - drafts[r];
      context.push_back(below(random, 20));
      const int keys = context.back() + n;
      for (int i = 0; i < n; ++i) parent.push_back(below(random, i + 1) - 1);
      for (int i = 0; i < n; ++i) {
        Bytes row(static_cast<std::size_t>(keys), 0);
        std::fill_n(row.begin(), context.back(), std::uint8_t{1});
        for (int at = i; at >= 0; at = parent[static_cast<std::size_t>(drafts[r] + at)])
          row[static_cast<std::size_t>(context.back() + at)] = 1;
        dense.insert(dense.end(), row.begin(), row.end());
      }
    }
    check_means(
        sparse_or_fail(from_draft_trees({drafts, parent, context}, test::random_block(random))),
        dense);
  }
}

TEST_CASE("a draft tree whose numbers fall: any order of the tokens") {
  // Token 2 is the first draft, 0 and 1 hang on it; 3 keys of context.
  const Ints drafts{0, 3}, parent{2, 0, -1}, context{3};
  check_means(sparse_or_fail(from_draft_trees({drafts, parent, context}, {3, 2})),
              {1, 1, 1, 1, 0, 1,  //
               1, 1, 1, 1, 1, 1,  //
               1, 1, 1, 0, 0, 1});
}

TEST_CASE("dense masks of any size, and what agrees with them") {
  std::mt19937 random(5);
  int whole = 0;
  int with_bits = 0;
  for (int round = 0; round < 400; ++round) {
    const int batch = below(random, 4);
    const Ints qo = test::random_indptr(random, batch, 12);
    const Ints kv = test::random_indptr(random, batch, 30);
    Bytes dense;
    for (int r = 0; r < batch; ++r) {
      const int runs = 1 + below(random, 6);  // of equal keys; 1: noise
      for (int i = 0; i < qo[r + 1] - qo[r]; ++i)
        for (int j = 0; j < kv[r + 1] - kv[r]; ++j)
          dense.push_back(j % runs == 0 ? static_cast<std::uint8_t>(random() % 2) : dense.back());
    }
    const DenseMask mask{qo, kv, dense};
    const BlockSparse sparse = sparse_or_fail(from_mask(mask, test::random_block(random)));
    check_means(sparse, dense);
    CHECK(check_agrees(sparse, mask).ok());
    whole += static_cast<int>(std::count(sparse.partial.begin(), sparse.partial.end(), -1));
    with_bits += needs_custom_mask(sparse) ? 1 : 0;
    if (dense.empty()) continue;
    Bytes other = dense;
    const std::size_t at = random() % other.size();
    other[at] ^= 1;
    const Status status = check_agrees(sparse, {qo, kv, other});
    CHECK(status.path == "mask.mask[" + std::to_string(at) + "]");
  }
  CHECK(whole > 500);
  CHECK(with_bits > 200);
}

TEST_CASE("re-blocking: whole while the union is exact, bits where it is not") {
  // Rows of 1 see blocks of 2 keys: rows 0 and 1 see the same, 2 sees more.
  const Ints qo{0, 3}, kv{0, 8}, indptr{0, 2, 4, 7}, indices{0, 3, 3, 0, 0, 1, 3};
  const BlockSparse lists = sparse_or_fail(from_lists({qo, kv, indptr, indices}, {1, 2}));
  const BlockSparse pair = sparse_or_fail(reblock(lists, {2, 2}));
  CHECK(pair.indptr == Ints{0, 2, 5});
  CHECK(pair.indices == Ints{0, 3, 0, 1, 3});
  CHECK_FALSE(needs_custom_mask(pair));
  const BlockSparse three = sparse_or_fail(reblock(lists, {3, 2}));
  CHECK(three.indices == Ints{0, 1, 3});
  CHECK(three.partial == Ints{-1, 0, -1});
  CHECK(three.bits == Bytes{0b110000});  // of block 1 the keys of the third row
  // Larger blocks of keys: columns 0 and 1 together are seen whole by the last row only.
  const BlockSparse wide = sparse_or_fail(reblock(lists, {1, 4}));
  CHECK(wide.indices == Ints{0, 1, 0, 1, 0, 1});
  CHECK(wide.partial == Ints{0, 1, 2, 3, -1, 4});
  CHECK(wide.bits == Bytes{0b0011, 0b1100, 0b0011, 0b1100, 0b1100});
}

TEST_CASE("the rows that fill a query tile") {
  CHECK(block_rows_of_tile(128, 4) == 32);
  CHECK(block_rows_of_tile(16, 7) == 2);
  CHECK(block_rows_of_tile(16, 16) == 1);
  CHECK(block_rows_of_tile(16, 32) == 1);
  CHECK(block_rows_of_tile(1, 1) == 1);
}

TEST_CASE("B47: the last bit of a mask of 131072 x 131072") {
  CHECK(custom_mask_bit(131071, 131071, 131072) == 17179869183);
  CHECK(custom_mask_bit(131071, 131071, 131072) / 8 == 2147483647);
  CHECK(custom_mask_bit(0, 0, 131072) == 0);
  CHECK(custom_mask_bit(131071, 0, 131072) == 17179738112);
  // Its size, without 2 GiB of memory: one row of blocks sees the last key.
  const Ints qo{0, 131072}, kv{0, 131072};
  Ints indptr(8193, 0);
  indptr.back() = 1;
  const BlockSparse sparse = sparse_or_fail(from_lists({qo, kv, indptr, Ints{8191}}, {16, 16}));
  CHECK(custom_mask_bytes(sparse) == 2147483648);
  const std::vector<TokenKeys> keys = keys_of_request(sparse, 0);
  CHECK(keys[131055].empty());
  REQUIRE(keys[131071].size() == 1);
  CHECK(keys[131071][0].begin == 131056);
  CHECK(keys[131071][0].end == 131072);
}

}  // namespace
}  // namespace attnloom
