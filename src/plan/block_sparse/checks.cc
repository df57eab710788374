// SPDX-License-Identifier: Apache-2.0
#include "plan/block_sparse/checks.h"

#include <algorithm>
#include <numeric>

namespace attnloom {
namespace {

Status check_once_a_request(const std::string& group, const PageTable& pages) {
  std::vector<std::pair<std::int32_t, std::int32_t>> seen;  // page, entry
  for (std::size_t r = 0; r + 1 < pages.kv_indptr.size(); ++r) {
    seen.clear();
    for (std::int32_t i = pages.kv_indptr[r]; i < pages.kv_indptr[r + 1]; ++i)
      seen.emplace_back(pages.indices[i], i);
    std::sort(seen.begin(), seen.end());
    const auto twice = std::adjacent_find(
        seen.begin(), seen.end(), [](const auto& a, const auto& b) { return a.first == b.first; });
    if (twice == seen.end()) continue;
    return invalid(entry(group, "page_indices", (twice + 1)->second),
                   "request " + text(static_cast<std::int64_t>(r)) + ": wanted each page once, " +
                       "given " + text(twice->first) + " again",
                   "a mask cannot count a key twice; layout \"paged\" can");
  }
  return ok_status();
}

}  // namespace

Status check_indptr_of(const std::string& group, const std::string& array, IndexArray indptr,
                       std::int64_t length) {
  ATTNLOOM_CHECK(renamed(check_length(array, indptr.size(), length, "see what it counts"), group));
  return renamed(check_indptr(array, indptr), group);
}

Status check_indptrs(const std::string& group, IndexArray qo_indptr, IndexArray kv_indptr) {
  if (qo_indptr.empty())
    return invalid(group + ".qo_indptr", "wanted batch + 1 entries, given 0",
                   "an empty batch is [0]");
  ATTNLOOM_CHECK(check_indptr_of(group, "qo_indptr", qo_indptr, std::ssize(qo_indptr)));
  ATTNLOOM_CHECK(renamed(check_length("kv_indptr", kv_indptr.size(), std::ssize(qo_indptr),
                                      "the batch size is that of qo_indptr, less one"),
                         group));
  return renamed(check_indptr("kv_indptr", kv_indptr), group);
}

Status check_flags(const std::string& group, const std::string& array,
                   std::span<const std::uint8_t> bytes, const std::string& remedy) {
  const auto odd =
      std::find_if(bytes.begin(), bytes.end(), [](std::uint8_t byte) { return byte > 1; });
  if (odd == bytes.end()) return ok_status();
  return invalid(entry(group, array, odd - bytes.begin()), "wanted 0 or 1, given " + text(*odd),
                 remedy);
}

Status check_pages(const std::string& group, const PageTable& pages) {
  ATTNLOOM_CHECK(check_indptrs(group, pages.qo_indptr, pages.kv_indptr));
  if (pages.page_size < 1 || pages.page_size > 65536)
    return invalid(group + ".page_size", "wanted 1 to 65536, given " + text(pages.page_size),
                   "it counts the tokens of a page");
  if (pages.pool_pages < 1 || pages.pool_pages > kMaxLength / pages.page_size)
    return invalid(group + ".pool_pages",
                   "wanted 1 to " + text(kMaxLength / pages.page_size) + " with page_size " +
                       text(pages.page_size) + ", given " + text(pages.pool_pages),
                   "the pool's keys are numbered in int32");
  Spec spec;
  spec.layout.kv = KvLayout::kPaged;
  spec.layout.page_size = pages.page_size;
  Workload workload;
  workload.qo_indptr = pages.qo_indptr;
  workload.kv_indptr = pages.kv_indptr;
  workload.last_page_len = pages.last_page_len;
  workload.page_indices = pages.indices;
  workload.pool_pages = pages.pool_pages;
  ATTNLOOM_CHECK(renamed(check_kv_arrays(spec, workload), group));
  if (pages.indices.empty() && pages.kv_indptr.back() > 0)
    return invalid(group + ".page_indices",
                   "wanted " + text(pages.kv_indptr.back()) + " entries, given 0",
                   "a converter reads them on the host");
  return check_once_a_request(group, pages);
}

std::int64_t keys_of_pages(const PageTable& pages, int request) {
  const std::int64_t count = pages.kv_indptr[request + 1] - pages.kv_indptr[request];
  return count == 0 ? 0 : (count - 1) * pages.page_size + pages.last_page_len[request];
}

int block_of_pages(const PageTable& pages) {
  int block = pages.page_size;
  for (const std::int32_t length : pages.last_page_len) block = std::gcd(block, length);
  return block;
}

TokenKeys first_keys(const TokenKeys& path, std::int64_t count) {
  TokenKeys kept;
  for (const KeyRange& range : path) {
    if (count <= 0) break;
    const std::int64_t length = std::min<std::int64_t>(range.end - range.begin, count);
    kept.push_back({range.begin, static_cast<std::int32_t>(range.begin + length)});
    count -= length;
  }
  return kept;
}

void add_tokens(const TokenKeys& path, std::int64_t kv_len, std::int64_t qo_len, bool causal,
                std::vector<TokenKeys>& tokens) {
  for (std::int64_t i = 0; i < qo_len; ++i)
    tokens.push_back(first_keys(path, causal ? causal_keys(i, qo_len, kv_len) : kv_len));
}

Result<BlockSparse> whole_batch(const std::vector<TokenKeys>& tokens, std::int64_t keys,
                                BlockSize block) {
  BlockSparse out;
  out.block = block;
  ATTNLOOM_CHECK(append_request(tokens, keys, &out));
  return out;
}

}  // namespace attnloom
