// SPDX-License-Identifier: Apache-2.0
// What converters refuse: the array, the entry, and the request or head that it belongs to.
#include <algorithm>

#include "dense_mask.h"

namespace attnloom {
namespace {

using test::Bytes;
using test::Ints;

void check_refused(const Status& status, const std::string& path, const std::string& cause) {
  INFO(status.to_string());
  CHECK(status.code == Code::kWorkloadInvalid);
  CHECK(status.path == path);
  CHECK_THAT(status.cause, Catch::Contains(cause));
  CHECK_FALSE(status.remedy.empty());
}

TEST_CASE("page tables: what is refused") {
  struct Row {
    const char* path = "";
    const char* cause = "";
    Ints qo{0, 1, 3}, kv{0, 2, 3}, indices{4, 0, 4}, last{16, 3};
    int page_size = 16;
    std::int64_t pool = 5;
    BlockSize block{};
  };
  const Row rows[] = {
      {.path = "pages.qo_indptr", .cause = "given 0", .qo = {}},
      {.path = "pages.qo_indptr[0]", .cause = "wanted 0, given 1", .qo = {1, 1, 3}},
      {.path = "pages.qo_indptr[2]", .cause = "wanted at least 3, given 2", .qo = {0, 3, 2}},
      {.path = "pages.kv_indptr", .cause = "wanted 3 entries, given 2", .kv = {0, 2}},
      {.path = "pages.kv_indptr[2]", .cause = "wanted at least 2, given 1", .kv = {0, 2, 1}},
      {.path = "pages.last_page_len", .cause = "wanted 2 entries, given 1", .last = {16}},
      {.path = "pages.last_page_len[1]",
       .cause = "wanted 1 to page_size 16, given 0",
       .last = {16, 0}},
      {.path = "pages.last_page_len[0]",
       .cause = "wanted 1 to page_size 16, given 17",
       .last = {17, 3}},
      {.path = "pages.page_indices", .cause = "wanted 3 entries, given 0", .indices = {}},
      {.path = "pages.page_indices",
       .cause = "wanted at least 3 entries, given 2",
       .indices = {4, 0}},
      {.path = "pages.page_indices[2]",
       .cause = "request 1, entry 0: wanted a page from 0 to 4, given 5",
       .indices = {4, 0, 5}},
      {.path = "pages.page_indices[1]",
       .cause = "request 0, entry 1: wanted a page from 0 to 4, given -1",
       .indices = {4, -1, 4}},
      {.path = "pages.page_indices[1]",
       .cause = "request 0: wanted each page once, given 4 again",
       .indices = {4, 4, 1}},
      {.path = "pages.page_size", .cause = "given 0", .page_size = 0},
      {.path = "pages.pool_pages", .cause = "given 0", .pool = 0},
      {.path = "pages.pool_pages", .cause = "wanted 1 to 134217711", .pool = 134217720},
      {.path = "block", .cause = "given 65537 x 16", .block = {65537, 16}},
      {.path = "block", .cause = "given 1 x -1", .block = {1, -1}},
  };
  for (const Row& row : rows) {
    CAPTURE(&row - rows);
    const PageTable table{row.qo, row.kv, row.indices, row.last, row.page_size, row.pool};
    check_refused(from_pages(table, row.block).status(), row.path, row.cause);
  }
  const Row good{};
  CHECK(from_pages({good.qo, good.kv, good.indices, good.last, 16, 5}, {}).ok());
  // The largest pool whose keys have numbers.
  CHECK(from_pages({good.qo, good.kv, good.indices, good.last, 16, 134217711}, {}).ok());
}

TEST_CASE("ragged arrays and lists: what is refused") {
  const Ints qo{0, 2}, kv{0, 5};
  check_refused(from_ragged({qo, Ints{0}}, {1, 1}).status(), "ragged.kv_indptr", "given 1");
  check_refused(from_ragged({qo, kv}, {}).status(), "block", "given 0 x 0");
  check_refused(from_ragged({Ints{0, 1}, Ints{0, 2147483392}}, {1, 65536}).status(), "block_sparse",
                "request 0: wanted at most 2147483647 query tokens and keys");
  CHECK(from_ragged({Ints{0, 1}, Ints{0, 2147483391}}, {1, 65536}).ok());
  struct Row {
    const char* path;
    const char* cause;
    Ints indptr, indices;
  };
  const Row rows[] = {
      {"lists.block_indptr", "wanted 3 entries, given 2", {0, 1}, {0}},
      {"lists.block_indptr[2]", "wanted at least 2, given 1", {0, 2, 1}, {0, 1}},
      {"lists.block_indices", "wanted 2 entries, given 0", {0, 1, 2}, {}},
      {"lists.block_indices", "wanted at least 2 entries, given 1", {0, 1, 2}, {0}},
      {"lists.block_indices[1]",
       "request 0: wanted a block from 0 to 2, given 3",
       {0, 1, 2},
       {0, 3}},
      {"lists.block_indices[1]", "request 0: wanted each block once", {0, 2, 2}, {1, 1}},
  };
  for (const Row& row : rows) {
    CAPTURE(&row - rows);
    check_refused(from_lists({qo, kv, row.indptr, row.indices}, {1, 2}).status(), row.path,
                  row.cause);
  }
}

TEST_CASE("trees: what is refused, cycles among it") {
  struct Row {
    const char* path;
    const char* cause;
    Ints qo{0, 1, 2}, node{1, 2}, parent{-1, 0, 0}, begin{0, 4, 6}, count{4, 2, 2};
    std::int64_t keys = 8;
  };
  const Row rows[] = {
      {.path = "tree.qo_indptr", .cause = "given 0", .qo = {}},
      {.path = "tree.node", .cause = "wanted 2 entries, given 1", .node = {1}},
      {.path = "tree.node[1]",
       .cause = "request 1: wanted a node from 0 to 2, given 3",
       .node = {1, 3}},
      {.path = "tree.node[0]",
       .cause = "request 0: wanted a node from 0 to 2, given -1",
       .node = {-1, 2}},
      {.path = "tree.parent[2]", .cause = "given 3", .parent = {-1, 0, 3}},
      {.path = "tree.parent[2]", .cause = "given 2", .parent = {-1, 0, 2}},
      {.path = "tree.parent[0]", .cause = "the ancestors of node 0 never end", .parent = {1, 0, 0}},
      {.path = "tree.parent[1]",  // though no request reaches it
       .cause = "the ancestors of node 1 never end",
       .node = {0, 0},
       .parent = {-1, 2, 1}},
      {.path = "tree.key_begin", .cause = "wanted 3 entries, given 2", .begin = {0, 4}},
      {.path = "tree.key_count", .cause = "wanted 3 entries, given 4", .count = {4, 2, 2, 0}},
      {.path = "tree.key_begin[2]",
       .cause = "node 2: wanted keys within 0 to 8, given 3 from 6",
       .count = {4, 2, 3}},
      {.path = "tree.key_begin[0]",
       .cause = "node 0: wanted keys within 0 to 8, given 4 from -1",
       .begin = {-1, 4, 6}},
      {.path = "tree.node[1]",
       .cause = "request 1: two nodes on the way to node 2 hold key 3",
       .begin = {0, 4, 3}},
      {.path = "tree.keys", .cause = "given -1", .keys = -1},
  };
  for (const Row& row : rows) {
    CAPTURE(&row - rows);
    const PrefixTree tree{row.qo, row.node, row.parent, row.begin, row.count, row.keys};
    check_refused(from_prefix_tree(tree, {1, 2}).status(), row.path, row.cause);
  }
  const Ints drafts{0, 2, 4}, context{3, 5};
  const auto of_parents = [&](const Ints& parent) {
    return from_draft_trees({drafts, parent, context}, {2, 2}).status();
  };
  CHECK(of_parents({-1, 0, -1, 0}).ok());
  check_refused(of_parents({-1, 0, 1, 0}), "drafts.parent[2]",
                "request 1: the ancestors of node 0 never end");
  check_refused(of_parents({-1, 0, -1, 2}), "drafts.parent[3]",
                "request 1: wanted -1 or another of 2 nodes, given 2");
  check_refused(of_parents({-1, 0, -1}), "drafts.parent", "wanted 4 entries, given 3");
  check_refused(from_draft_trees({drafts, Ints{-1, 0, -1, 0}, Ints{3, -1}}, {2, 2}).status(),
                "drafts.context_len[1]", "request 1: wanted 0 or more");
  check_refused(from_draft_trees({drafts, Ints{-1, 0, -1, 0}, Ints{3}}, {2, 2}).status(),
                "drafts.context_len", "wanted 2 entries, given 1");
}

TEST_CASE("B61: a pattern of other lengths, and two that disagree") {
  const Ints qo{0, 1200}, kv{0, 1200};
  check_refused(from_mask({qo, kv, Bytes(1280 * 1280, 1)}, {128, 64}).status(), "mask.mask",
                "wanted 1440000 bytes, qo_len x kv_len of each request, given 1638400");
  Ints indptr{0};
  Ints indices;
  for (int row = 0; row < 10; ++row) {
    for (int column = 0; column < 20; ++column) indices.push_back(column);
    indptr.push_back(static_cast<std::int32_t>(indices.size()));
  }
  check_refused(from_lists({qo, kv, indptr, indices}, {128, 64}).status(), "lists.block_indptr[1]",
                "request 0: wanted at most 19 blocks");

  // The block mask [[1, 0]] and the list [1], of blocks of one key and of 64.
  const BlockSparse one =
      test::sparse_or_fail(from_lists({Ints{0, 1}, Ints{0, 2}, Ints{0, 1}, Ints{1}}, {1, 1}));
  check_refused(check_agrees(one, {Ints{0, 1}, Ints{0, 2}, Bytes{1, 0}}), "mask.mask[0]",
                "request 0, query token 0, key 0: the lists say 0, the mask says 1");
  const BlockSparse wide = test::sparse_or_fail(
      from_lists({Ints{0, 128}, Ints{0, 128}, Ints{0, 1}, Ints{1}}, {128, 64}));
  Bytes mask(128 * 128, 0);
  for (std::size_t i = 0; i < mask.size(); ++i) mask[i] = i % 128 < 64 ? 1 : 0;
  check_refused(check_agrees(wide, {Ints{0, 128}, Ints{0, 128}, mask}), "mask.mask[0]",
                "the lists say 0, the mask says 1");
  for (std::uint8_t& byte : mask) byte ^= 1;
  CHECK(check_agrees(wide, {Ints{0, 128}, Ints{0, 128}, mask}).ok());
  check_refused(check_agrees(wide, {Ints{0, 64}, Ints{0, 128}, Bytes(64 * 128, 0)}), "mask",
                "request 0: wanted 128 x 128 as the lists have, given 64 x 128");
  check_refused(check_agrees(wide, {Ints{0, 64, 128}, Ints{0, 64, 128}, Bytes(64 * 128, 0)}),
                "mask.qo_indptr", "wanted 1 requests as the lists have, given 2");
  check_refused(from_mask({Ints{0, 1}, Ints{0, 2}, Bytes{0, 2}}, {1, 1}).status(), "mask.mask[1]",
                "wanted 0 or 1, given 2");
}

TEST_CASE("patterns of heads: what is refused") {
  const Ints qo{0, 1}, kv{0, 2}, indices{3, 0}, last{1};
  const auto picked = [&](int heads, const Ints& indptr, const Ints& picks, bool causal = false) {
    const PageTable pages{qo, kv, indices, last, 4, 5, causal};
    return from_head_pages({pages, indptr, picks, heads}, {}).status();
  };
  CHECK(picked(2, {0, 1, 3}, {1, 0, 1}).ok());
  check_refused(picked(2, {0, 1}, {1}), "picks.pick_indptr", "wanted 3 entries, given 2");
  check_refused(picked(2, {0, 1, 0}, {1}), "picks.pick_indptr[2]", "wanted at least 1, given 0");
  check_refused(picked(2, {0, 1, 3}, {1, 0}), "picks.picks", "wanted 3 entries, given 2");
  check_refused(picked(2, {0, 1, 3}, {1, 0, 2}), "picks.picks[2]",
                "request 0, KV head 1: wanted a page from 0 to 1 of the request's 2, given 2");
  check_refused(picked(2, {0, 1, 3}, {1, 0, 0}), "picks.picks[2]",
                "request 0, KV head 1: wanted each page once, given 0 again");
  check_refused(picked(0, {0}, {}), "picks.kv_heads", "given 0");
  check_refused(picked(107374176, {0}, {}), "picks.kv_heads", "wanted 1 to 107374169");
  check_refused(picked(2, {0, 1, 3}, {1, 0, 1}, true), "picks.pages.causal", "given 1");

  struct Row {
    const char* path;
    const char* cause;
    Ints row_indptr{0, 2, 3}, rows{1, 2, 3}, column_indptr{0, 1, 3}, columns{4, 2, 2};
    Bytes map{1, 0, 1, 1};
  };
  const Row table[] = {
      {.path = "heads.row_indptr", .cause = "given 0", .row_indptr = {}},
      {.path = "heads.row_indptr[2]",
       .cause = "wanted at least 2, given 1",
       .row_indptr = {0, 2, 1}},
      {.path = "heads.row_sizes", .cause = "wanted 3 entries, given 2", .rows = {1, 2}},
      {.path = "heads.row_sizes[1]", .cause = "wanted 1 or more, given 0", .rows = {3, 0, 3}},
      {.path = "heads.row_sizes",
       .cause = "KV head 1: wanted sizes of 3 in all",
       .rows = {1, 2, 4}},
      {.path = "heads.column_sizes",
       .cause = "KV head 1: wanted sizes of 4 in all",
       .columns = {4, 2, 3}},
      {.path = "heads.column_indptr",
       .cause = "wanted 3 entries, given 2",
       .column_indptr = {0, 1},
       .columns = {4}},
      {.path = "heads.map",
       .cause = "wanted 4 bytes, rows x columns of each head, given 3",
       .map = {1, 0, 1}},
      {.path = "heads.map[3]", .cause = "wanted 0 or 1, given 255", .map = {1, 0, 1, 255}},
  };
  for (const Row& row : table) {
    CAPTURE(&row - table);
    check_refused(
        from_head_blocks({row.row_indptr, row.rows, row.column_indptr, row.columns, row.map}, {})
            .status(),
        row.path, row.cause);
  }
}

// Good tables, of which some entries were changed, dropped or added: an answer is an error, or a
// pattern that is whole (dense_of checks it).
TEST_CASE("bent tables are refused or mean something") {
  std::mt19937 random(61);
  const auto bent = [&](auto values) {
    const auto change = random() % 12;
    const std::size_t at = random() % values.size();
    if (change < 3) values[at] = static_cast<std::int32_t>(values[at] + test::below(random, 7) - 3);
    if (change == 3) values.pop_back();
    if (change == 4) values.push_back(values.back());
    if (change == 5) std::swap(values[at], values[0]);
    return values;
  };
  std::vector<int> made(8, 0);
  std::size_t turn = 0;
  const auto judge = [&](const Result<BlockSparse>& result) {
    const std::size_t converter = turn++ % made.size();
    if (!result.ok()) {
      REQUIRE(result.status().code == Code::kWorkloadInvalid);
      REQUIRE_FALSE(result.status().path.empty());
      return;
    }
    ++made[converter];
    const Bytes dense = test::dense_of(*result);
    REQUIRE(test::dense_of(test::sparse_or_fail(reblock(*result, {2, 2}))) == dense);
  };
  constexpr int kRounds = 2000;
  for (int round = 0; round < kRounds; ++round) {
    const Ints qo = bent(Ints{0, 2, 3}), kv = bent(Ints{0, 4, 9});
    judge(from_ragged({qo, kv}, {2, 2}));
    const Ints lists = bent(Ints{0, 2, 3, 5}), blocks = bent(Ints{0, 1, 1, 0, 2});
    judge(from_lists({qo, kv, lists, blocks}, {1, 2}));
    const Ints pages = bent(Ints{4, 0, 4}), page_indptr = bent(Ints{0, 2, 3}),
               last = bent(Ints{3, 2});
    const PageTable table{qo, page_indptr, pages, last, 4, 5};
    judge(from_pages(table, {}));
    const Ints node = bent(Ints{1, 2}), parent = bent(Ints{-1, 0, 0}), begin = bent(Ints{0, 4, 6}),
               count = bent(Ints{4, 2, 2});
    judge(from_prefix_tree({qo, node, parent, begin, count, 8, round % 2 == 0}, {2, 3}));
    const Ints drafts = bent(Ints{0, 2, 4}), above = bent(Ints{-1, 0, -1, 0}),
               context = bent(Ints{3, 5});
    judge(from_draft_trees({drafts, above, context}, {2, 3}));
    const Bytes bytes = bent(Bytes(2 * 4 + 1 * 5, 1));
    judge(from_mask({qo, kv, bytes}, {2, 3}));
    const Ints lists_of_heads = bent(Ints{0, 1, 3, 4, 4, 4, 5}), picks = bent(Ints{1, 0, 1, 0, 0});
    judge(from_head_pages({table, lists_of_heads, picks, 2}, {}));
    const Ints rows = bent(Ints{1, 2, 3}), columns = bent(Ints{4, 2, 2}),
               row_indptr = bent(Ints{0, 2, 3});
    const Bytes map = bent(Bytes{1, 0, 1, 1});
    judge(from_head_blocks({row_indptr, rows, Ints{0, 1, 3}, columns, map}, {}));
  }
  for (const int count : made) {
    CHECK(count > kRounds / 20);
    CHECK(count < kRounds * 9 / 10);
  }
}

}  // namespace
}  // namespace attnloom
