// SPDX-License-Identifier: Apache-2.0
// From patterns of each KV head: pages that it picks, blocks of its own sizes.
#include <algorithm>
#include <numeric>

#include "plan/block_sparse/checks.h"

namespace attnloom {
namespace {

Status check_picks(const HeadPages& picks) {
  ATTNLOOM_CHECK(check_pages("picks.pages", picks.pages));
  const std::int64_t keys = picks.pages.pool_pages * picks.pages.page_size;
  if (picks.kv_heads < 1 || picks.kv_heads > kMaxLength / keys)
    return invalid("picks.kv_heads",
                   "wanted 1 to " + text(kMaxLength / keys) + " with a pool of " + text(keys) +
                       " keys, given " + text(picks.kv_heads),
                   "keys of all heads are numbered in int32");
  if (picks.pages.causal)
    return invalid("picks.pages.causal", "wanted 0, given 1", "pick only what the token may see");
  return check_indptr_of("picks", "pick_indptr", picks.indptr,
                         std::int64_t{picks.pages.qo_indptr.back()} * picks.kv_heads + 1);
}

// The keys of one list, for head `head` of a pool seen as keys of one head.
class PickedKeys {
 public:
  PickedKeys(const HeadPages& picks, int request, int head)
      : picks_(picks), request_(request), head_(head) {}

  void add(std::int32_t pick, TokenKeys& keys) const {
    const PageTable& pages = picks_.pages;
    const std::int32_t at = pages.kv_indptr[request_] + pick;
    const std::int32_t length =
        at + 1 == pages.kv_indptr[request_ + 1] ? pages.last_page_len[request_] : pages.page_size;
    const std::int32_t page = pages.indices[at];
    if (picks_.order == HeadOrder::kHnd) {
      const std::int32_t begin = (page * picks_.kv_heads + head_) * pages.page_size;
      keys.push_back({begin, begin + length});
      return;
    }
    for (std::int32_t s = 0; s < length; ++s) {
      const std::int32_t key = (page * pages.page_size + s) * picks_.kv_heads + head_;
      keys.push_back({key, key + 1});
    }
  }

 private:
  const HeadPages& picks_;
  int request_;
  int head_;
};

Result<TokenKeys> picked_keys(const HeadPages& picks, int request, std::int64_t list) {
  const int head = static_cast<int>(list % picks.kv_heads);
  const std::int32_t count = picks.pages.kv_indptr[request + 1] - picks.pages.kv_indptr[request];
  const std::string who = "request " + text(request) + ", KV head " + text(head) + ": ";
  std::vector<char> seen(static_cast<std::size_t>(count), 0);
  TokenKeys keys;
  for (std::int32_t i = picks.indptr[list]; i < picks.indptr[list + 1]; ++i) {
    const std::int32_t pick = picks.picks[i];
    if (pick < 0 || pick >= count)
      return invalid(entry("picks", "picks", i),
                     who + "wanted a page from 0 to " + text(count - 1) + " of the request's " +
                         text(count) + ", given " + text(pick),
                     "picks number the request's own pages");
    if (std::exchange(seen[pick], 1) != 0)
      return invalid(entry("picks", "picks", i),
                     who + "wanted each page once, given " + text(pick) + " again",
                     "a repeated page would count twice");
    PickedKeys(picks, request, head).add(pick, keys);
  }
  return keys;
}

// What one head of HeadBlocks says along one axis.
struct Sizes {
  const char* indptr_name;
  const char* sizes_name;
  IndexArray indptr;
  IndexArray sizes;

  std::int64_t count(std::size_t head) const { return indptr[head + 1] - indptr[head]; }
  std::int64_t total(std::size_t head) const {
    return std::accumulate(sizes.begin() + indptr[head], sizes.begin() + indptr[head + 1],
                           std::int64_t{0});
  }
  int divisor() const {
    std::int32_t common = 0;
    for (const std::int32_t size : sizes) common = std::gcd(common, size);
    return std::clamp(common, 1, 65536);
  }
};

// Every head cuts the same number of tokens.
Status check_sizes(const Sizes& axis) {
  if (axis.indptr.empty())
    return invalid(std::string("heads.") + axis.indptr_name, "wanted KV heads + 1 entries, given 0",
                   "it counts the blocks of each head");
  ATTNLOOM_CHECK(check_indptr_of("heads", axis.indptr_name, axis.indptr, std::ssize(axis.indptr)));
  ATTNLOOM_CHECK(renamed(check_length(axis.sizes_name, axis.sizes.size(), axis.indptr.back(),
                                      "indptr ends at the number of sizes"),
                         "heads"));
  for (std::int64_t i = 0; i < std::ssize(axis.sizes); ++i) {
    if (axis.sizes[i] >= 1) continue;
    return invalid(entry("heads", axis.sizes_name, i),
                   "wanted 1 or more, given " + text(axis.sizes[i]), "leave empty blocks out");
  }
  for (std::size_t h = 0; h + 1 < axis.indptr.size(); ++h) {
    if (axis.total(h) == axis.total(0) && axis.total(h) <= kMaxLength) continue;
    return invalid(std::string("heads.") + axis.sizes_name,
                   "KV head " + text(static_cast<std::int64_t>(h)) + ": wanted sizes of " +
                       text(axis.total(0)) + " in all as KV head 0 has, at most " +
                       text(kMaxLength) + ", given " + text(axis.total(h)),
                   "every head has the same tokens");
  }
  return ok_status();
}

// Of each row of the head's map the keys that it keeps, one list for each query token.
std::vector<TokenKeys> keys_of_head(const Sizes& rows, const Sizes& columns, std::size_t head,
                                    const std::uint8_t* map) {
  std::vector<TokenKeys> tokens;
  for (std::int32_t i = rows.indptr[head]; i < rows.indptr[head + 1]; ++i) {
    TokenKeys keys;
    std::int32_t begin = 0;
    for (std::int32_t j = columns.indptr[head]; j < columns.indptr[head + 1]; ++j) {
      const std::int32_t end = begin + columns.sizes[j];
      if (*map++ != 0) keys.push_back({begin, end});
      begin = end;
    }
    tokens.insert(tokens.end(), static_cast<std::size_t>(rows.sizes[i]), keys);
  }
  return tokens;
}

}  // namespace

Result<BlockSparse> from_head_pages(const HeadPages& picks, BlockSize block) {
  ATTNLOOM_CHECK(check_picks(picks));
  ATTNLOOM_CHECK(renamed(check_length("picks", picks.picks.size(), picks.indptr.back(),
                                      "indptr ends at the number of picks"),
                         "picks"));
  if (block.rows == 0) block.rows = 1;
  if (block.columns == 0)
    block.columns = picks.order == HeadOrder::kHnd ? block_of_pages(picks.pages) : 1;
  ATTNLOOM_CHECK(check_block(block, "block"));
  std::vector<TokenKeys> tokens;
  std::int64_t list = 0;
  for (int r = 0; r + 1 < std::ssize(picks.pages.qo_indptr); ++r) {
    const std::int64_t end = std::int64_t{picks.pages.qo_indptr[r + 1]} * picks.kv_heads;
    for (; list < end; ++list) {
      ATTNLOOM_TRY(TokenKeys keys, picked_keys(picks, r, list));
      tokens.push_back(std::move(keys));
    }
  }
  return whole_batch(tokens, picks.pages.pool_pages * picks.pages.page_size * picks.kv_heads,
                     block);
}

Result<BlockSparse> from_head_blocks(const HeadBlocks& heads, BlockSize block) {
  const Sizes rows{"row_indptr", "row_sizes", heads.row_indptr, heads.row_sizes};
  const Sizes columns{"column_indptr", "column_sizes", heads.column_indptr, heads.column_sizes};
  ATTNLOOM_CHECK(check_sizes(rows));
  ATTNLOOM_CHECK(check_sizes(columns));
  ATTNLOOM_CHECK(renamed(check_length("column_indptr", columns.indptr.size(),
                                      std::ssize(rows.indptr), "one for each head of row_indptr"),
                         "heads"));
  std::int64_t wanted = 0;
  for (std::size_t h = 0; h + 1 < rows.indptr.size(); ++h)
    wanted += rows.count(h) * columns.count(h);
  if (std::ssize(heads.map) != wanted)
    return invalid("heads.map",
                   "wanted " + text(wanted) + " bytes, rows x columns of each head, given " +
                       text(std::ssize(heads.map)),
                   "a byte for each block");
  ATTNLOOM_CHECK(check_flags("heads", "map", heads.map, "a byte for each block"));
  if (block.rows == 0) block.rows = rows.divisor();
  if (block.columns == 0) block.columns = columns.divisor();
  ATTNLOOM_CHECK(check_block(block, "block"));
  BlockSparse out;
  out.block = block;
  const std::uint8_t* map = heads.map.data();
  for (std::size_t h = 0; h + 1 < rows.indptr.size(); ++h) {
    ATTNLOOM_CHECK(append_request(keys_of_head(rows, columns, h, map), columns.total(h), &out));
    map += rows.count(h) * columns.count(h);
  }
  return out;
}

}  // namespace attnloom
