// SPDX-License-Identifier: Apache-2.0
// From a sparse format to an output, through the public interface on the simulated device.
#include <algorithm>

#include "block_sparse_rig.h"

using attnloom::cxx::index_array;
using namespace sparse_rig;

namespace {

// Rows token * heads + head, for tokens [begin, end).
void add_keys(std::int64_t begin, std::int64_t end, int heads, std::vector<std::int64_t>& keys) {
  for (std::int64_t row = begin * heads; row < end * heads; ++row) keys.push_back(row);
}

TEST_CASE("ragged arrays and lists run as what they mean") {
  const Ints qo{0, 5, 5, 12}, kv{0, 40, 41, 60};
  alm_ragged_keys ragged = zeroed<alm_ragged_keys>();
  ragged.qo_indptr = index_array(qo);
  ragged.kv_indptr = index_array(kv);
  const Numbers q(12 * 4, 1), k(60 * 2, 2), v(60 * 2, 3);
  Meaning meaning{.group = 2, .kv_heads = 2};
  for (int r = 0; r < 3; ++r) {
    meaning.requests.push_back({.qo_len = qo[r + 1] - qo[r]});
    add_keys(kv[r], kv[r + 1], 2, meaning.requests.back().keys);
  }
  Rig().check(BlockSparse(ragged, 8, 16), {2, 2}, q, k, v, judge(meaning, q, k, v));

  // Rows of 4 of the first request; the others see nothing.
  const Ints indptr{0, 2, 3, 3, 3}, indices{4, 1, 0};
  alm_block_lists lists = zeroed<alm_block_lists>();
  lists.qo_indptr = ragged.qo_indptr;
  lists.kv_indptr = ragged.kv_indptr;
  lists.block_indptr = index_array(indptr);
  lists.block_indices = index_array(indices);
  for (Meaning::Request& request : meaning.requests)
    request.mask.assign(static_cast<std::size_t>(request.qo_len) * request.keys.size() / 2, 0);
  for (int i = 0; i < 5; ++i)
    for (int j = 0; j < 40; ++j)
      meaning.requests[0].mask[static_cast<std::size_t>(i * 40 + j)] =
          (i < 4 ? j / 8 == 4 || j / 8 == 1 : j / 8 == 0) ? 1 : 0;
  const BlockSparse listed(lists, 4, 8);
  const auto wanted = judge(meaning, q, k, v);
  Rig().check(listed, {2, 2}, q, k, v, wanted);
  CHECK(listed.read().partial_blocks == 0);
  const BlockSparse rows_of_tiles = listed.reblock(8, 8);
  CHECK(rows_of_tiles.read().partial_blocks > 0);
  Rig().check(rows_of_tiles, {2, 2}, q, k, v, wanted);
}

TEST_CASE("tree attention: drafts of two requests on their contexts") {
  const Ints drafts{0, 9, 14}, context{37, 70};
  const Ints parent{-1, 0, 0, 1, 1, 2, -1, 6, 4, -1, 0, 1, 0, -1};
  alm_draft_trees trees = zeroed<alm_draft_trees>();
  trees.draft_indptr = index_array(drafts);
  trees.parent = index_array(parent);
  trees.context_len = index_array(context);
  Meaning meaning{.group = 2, .kv_heads = 2};
  std::int64_t first_key = 0;
  for (int r = 0; r < 2; ++r) {
    const int n = drafts[r + 1] - drafts[r];
    const int keys = context[r] + n;
    meaning.requests.push_back({.qo_len = n});
    add_keys(first_key, first_key + keys, 2, meaning.requests.back().keys);
    first_key += keys;
    for (int i = 0; i < n; ++i) {
      for (int j = 0; j < keys; ++j) {
        bool seen = j < context[r];
        for (int at = i; at >= 0; at = parent[static_cast<std::size_t>(drafts[r] + at)])
          seen = seen || j == context[r] + at;
        meaning.requests.back().mask.push_back(seen ? 1 : 0);
      }
    }
  }
  const Numbers q(14 * 4, 4), k(121 * 2, 5), v(121 * 2, 6);
  const auto wanted = judge(meaning, q, k, v);
  const BlockSparse sparse(trees, 8, 16);
  CHECK(sparse.read().partial_blocks > 0);
  Rig().check(sparse, {2, 2}, q, k, v, wanted);
  Rig().check(sparse.reblock(1, 1), {2, 2}, q, k, v, wanted);
}

TEST_CASE("a dense mask with partial blocks at its borders") {
  const Ints qo{0, 21, 24}, kv{0, 100, 133};
  std::mt19937 random(7);
  std::vector<std::uint8_t> bytes;
  Meaning meaning;
  for (int r = 0; r < 2; ++r) {
    meaning.requests.push_back({.qo_len = qo[r + 1] - qo[r]});
    Meaning::Request& request = meaning.requests.back();
    add_keys(kv[r], kv[r + 1], 1, request.keys);
    for (int i = 0; i < request.qo_len; ++i)
      for (int j = 0; j < kv[r + 1] - kv[r]; ++j) {
        const bool band = j / 32 == (i + r) % 4 || (j > 90 && random() % 3 == 0);
        request.mask.push_back(band && i != 20 ? 1 : 0);  // the last token sees nothing
      }
    bytes.insert(bytes.end(), request.mask.begin(), request.mask.end());
  }
  alm_dense_mask mask = zeroed<alm_dense_mask>();
  mask.qo_indptr = index_array(qo);
  mask.kv_indptr = index_array(kv);
  mask.mask = bytes.data();
  mask.mask_bytes = static_cast<std::int64_t>(bytes.size());
  const Numbers q(24, 8), k(133, 9), v(133, 10);
  const BlockSparse sparse(mask, 16, 32);
  sparse.check(mask);
  Rig().check(sparse, {}, q, k, v, judge(meaning, q, k, v));
}

TEST_CASE("a page table with shared pages, causal over its own order") {
  const Ints qo{0, 3, 4, 10}, kv{0, 3, 5, 9}, pages{7, 2, 5, 7, 2, 7, 2, 0, 3}, last{3, 8, 1};
  alm_page_table table = zeroed<alm_page_table>();
  table.qo_indptr = index_array(qo);
  table.kv_indptr = index_array(kv);
  table.page_indices = index_array(pages);
  table.last_page_len = index_array(last);
  table.pool_pages = 9;
  table.page_size = 8;
  table.causal = 1;
  Meaning meaning{.group = 3, .kv_heads = 2, .causal = true};
  for (int r = 0; r < 3; ++r) {
    meaning.requests.push_back({.qo_len = qo[r + 1] - qo[r]});
    for (int i = kv[r]; i < kv[r + 1]; ++i)
      add_keys(pages[i] * 8, pages[i] * 8 + (i + 1 == kv[r + 1] ? last[r] : 8), 2,
               meaning.requests.back().keys);
  }
  const Numbers q(10 * 6, 11), k(72 * 2, 12), v(72 * 2, 13);
  const auto wanted = judge(meaning, q, k, v);
  Rig().check(BlockSparse(table), {3, 2}, q, k, v, wanted);
  Rig().check(BlockSparse(table, 5, 8), {3, 2}, q, k, v, wanted);
}

TEST_CASE("a prefix tree: requests share the keys of their ancestors") {
  // 0 is the root of 1 and 2, 3 hangs on 1; 4 is a root of its own.
  const Ints parent{-1, 0, 0, 1, -1}, begin{50, 0, 20, 33, 90}, count{25, 20, 11, 7, 5};
  const Ints qo{0, 2, 3, 4, 6}, node{3, 2, 0, 4};
  alm_prefix_tree tree = zeroed<alm_prefix_tree>();
  tree.qo_indptr = index_array(qo);
  tree.node = index_array(node);
  tree.parent = index_array(parent);
  tree.key_begin = index_array(begin);
  tree.key_count = index_array(count);
  tree.keys = 96;
  tree.causal = 1;
  Meaning meaning{.group = 2, .causal = true};
  const std::vector<std::vector<int>> paths = {{0, 1, 3}, {0, 2}, {0}, {4}};
  for (int r = 0; r < 4; ++r) {
    meaning.requests.push_back({.qo_len = qo[r + 1] - qo[r]});
    for (const int n : paths[static_cast<std::size_t>(r)])
      add_keys(begin[n], begin[n] + count[n], 1, meaning.requests.back().keys);
  }
  const Numbers q(6 * 2, 14), k(96, 15), v(96, 16);
  Rig().check(BlockSparse(tree, 4, 16), {2, 1}, q, k, v, judge(meaning, q, k, v));
}

TEST_CASE("Quest: each KV head of a token sees the pages that it picks, in both orders") {
  const int heads = 2, page_size = 4, pool = 8;
  const Ints qo{0, 1, 3}, kv{0, 4, 7}, pages{5, 0, 3, 6, 1, 3, 7}, last{3, 2};
  const Ints indptr{0, 2, 4, 6, 6, 8, 9};  // tokens 0 and 1 pick two each, head 1 of 1 none
  const Ints picks{3, 0, 1, 2, 2, 0, 1, 2, 0};
  alm_head_pages given = zeroed<alm_head_pages>();
  alm_page_table table = zeroed<alm_page_table>();
  given.pages = &table;
  table.qo_indptr = index_array(qo);
  table.kv_indptr = index_array(kv);
  table.page_indices = index_array(pages);
  table.last_page_len = index_array(last);
  table.pool_pages = pool;
  table.page_size = page_size;
  given.pick_indptr = index_array(indptr);
  given.picks = index_array(picks);
  given.kv_heads = heads;
  const Numbers q(3 * heads * 4, 17), k(pool * page_size * heads, 18),
      v(k.values.size() / kDim, 19);
  for (const int hnd : {0, 1}) {
    given.hnd = hnd;
    Meaning meaning{.group = 4};
    for (int list = 0; list < 6; ++list) {
      const int r = list < heads ? 0 : 1;
      const int head = list % heads;
      meaning.requests.push_back({.qo_len = 1});
      for (int i = indptr[list]; i < indptr[list + 1]; ++i) {
        const int at = kv[r] + picks[i];
        for (int s = 0; s < (at + 1 == kv[r + 1] ? last[r] : page_size); ++s)
          meaning.requests.back().keys.push_back(hnd ? (pages[at] * heads + head) * page_size + s
                                                     : (pages[at] * page_size + s) * heads + head);
      }
    }
    const BlockSparse sparse(given);
    CHECK(sparse.read().block_columns == 1);  // last pages of 3 and 2 tokens: no larger one fits
    Rig().check(sparse, {4, 1}, q, k, v, judge(meaning, q, k, v));
  }
}

TEST_CASE("blocks of varying sizes, of each KV head its own") {
  const int heads = 2, qo_len = 24, kv_len = 60;
  const Ints row_indptr{0, 2, 5}, rows{8, 16, 4, 12, 8};
  const Ints column_indptr{0, 3, 5}, columns{12, 18, 30, 36, 24};
  const std::vector<std::uint8_t> map{1, 0, 1, 0, 1, 1, 1, 0, 0, 0, 0, 1};
  alm_head_blocks given = zeroed<alm_head_blocks>();
  given.row_indptr = index_array(row_indptr);
  given.row_sizes = index_array(rows);
  given.column_indptr = index_array(column_indptr);
  given.column_sizes = index_array(columns);
  given.map = map.data();
  given.map_bytes = 12;
  const Numbers q(heads * qo_len * 2, 20), k(heads * kv_len, 21), v(heads * kv_len, 22);
  Meaning meaning{.group = 2};
  for (int h = 0; h < heads; ++h) {
    meaning.requests.push_back({.qo_len = qo_len});
    Meaning::Request& request = meaning.requests.back();
    add_keys(h * kv_len, (h + 1) * kv_len, 1, request.keys);
    const auto block_of = [](const Ints& indptr, const Ints& sizes, int head, int token) {
      int block = 0;
      for (int i = indptr[head]; token >= sizes[i]; token -= sizes[i++]) ++block;
      return block;
    };
    const int count = column_indptr[h + 1] - column_indptr[h];
    for (int i = 0; i < qo_len; ++i)
      for (int j = 0; j < kv_len; ++j)
        request.mask.push_back(map[static_cast<std::size_t>(
            (h == 0 ? 0 : 6) + block_of(row_indptr, rows, h, i) * count +
            block_of(column_indptr, columns, h, j))]);
  }
  const auto wanted = judge(meaning, q, k, v);
  const BlockSparse refined(given);
  CHECK(refined.read().block_rows == 4);
  CHECK(refined.read().block_columns == 6);
  CHECK(refined.read().partial_blocks == 0);
  Rig().check(refined, {2, 1}, q, k, v, wanted);
  const BlockSparse large(given, 8, 16);
  CHECK(large.read().partial_blocks > 0);
  Rig().check(large, {2, 1}, q, k, v, wanted);
}

attnloom::reference::Output exactly(std::size_t rows, double o, double lse) {
  attnloom::reference::Output wanted;
  wanted.o.assign(rows * kDim, o);
  wanted.lse.assign(rows, lse);
  return wanted;
}

TEST_CASE("B31: what lies behind a last token reaches no output") {
  const Ints qo{0, 1}, kv{0, 2}, pages{0, 1}, last{1};
  alm_page_table table = zeroed<alm_page_table>();
  table.qo_indptr = index_array(qo);
  table.kv_indptr = index_array(kv);
  table.page_indices = index_array(pages);
  table.last_page_len = index_array(last);
  table.pool_pages = 2;
  table.page_size = 4;
  const auto zero = [](std::int64_t) { return 0.0; };
  for (const double stale : {std::nan(""), double{INFINITY}}) {
    const Numbers k = Numbers::rows(8, [&](std::int64_t row) { return row < 5 ? 0.0 : stale; });
    const Numbers v =
        Numbers::rows(8, [&](std::int64_t row) { return row < 5 ? double(row) : stale; });
    Rig().check(BlockSparse(table), {}, Numbers::rows(1, zero), k, v, exactly(1, 2.0, std::log(5)));
  }
}

TEST_CASE("B59: block-sparse lists are not dense attention") {
  const Ints qo{0, 512}, indptr{0, 1, 2, 3, 4}, indices{0, 0, 0, 0};
  alm_block_lists lists = zeroed<alm_block_lists>();
  lists.qo_indptr = lists.kv_indptr = index_array(qo);
  lists.block_indptr = index_array(indptr);
  lists.block_indices = index_array(indices);
  const auto zero = [](std::int64_t) { return 0.0; };
  const Numbers v = Numbers::rows(512, [](std::int64_t key) { return key < 64 ? 1.0 : 0.0; });
  Rig().check(BlockSparse(lists, 128, 64), {}, Numbers::rows(512, zero), Numbers::rows(512, zero),
              v, exactly(512, 1.0, 4.1588831));
}

}  // namespace
