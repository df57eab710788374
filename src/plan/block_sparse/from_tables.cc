// SPDX-License-Identifier: Apache-2.0
// From arrays that list keys: ragged, block lists, page tables.
#include <algorithm>

#include "plan/block_sparse/checks.h"

namespace attnloom {

Result<BlockSparse> from_ragged(const RaggedKeys& ragged, BlockSize block) {
  ATTNLOOM_CHECK(check_block(block, "block"));
  ATTNLOOM_CHECK(check_indptrs("ragged", ragged.qo_indptr, ragged.kv_indptr));
  BlockSparse out;
  out.block = block;
  for (std::size_t r = 0; r + 1 < ragged.qo_indptr.size(); ++r) {
    const std::int32_t kv_len = ragged.kv_indptr[r + 1] - ragged.kv_indptr[r];
    const std::vector<TokenKeys> tokens(
        static_cast<std::size_t>(ragged.qo_indptr[r + 1] - ragged.qo_indptr[r]),
        TokenKeys{{0, kv_len}});
    ATTNLOOM_CHECK(append_request(tokens, kv_len, &out));
  }
  return out;
}

Result<BlockSparse> from_lists(const BlockLists& lists, BlockSize block) {
  ATTNLOOM_CHECK(check_block(block, "block"));
  ATTNLOOM_CHECK(check_indptrs("lists", lists.qo_indptr, lists.kv_indptr));
  Spec spec;
  spec.layout.kv = KvLayout::kBsr;
  spec.layout.block_rows = block.rows;
  spec.layout.block_columns = block.columns;
  Workload workload;
  workload.qo_indptr = lists.qo_indptr;
  workload.kv_indptr = lists.kv_indptr;
  workload.block_indptr = lists.block_indptr;
  workload.block_indices = lists.block_indices;
  ATTNLOOM_CHECK(renamed(check_kv_arrays(spec, workload), "lists"));
  const std::int32_t used = lists.block_indptr.back();
  if (lists.block_indices.empty() && used > 0)
    return invalid("lists.block_indices", "wanted " + text(used) + " entries, given 0",
                   "a converter reads them on the host");
  BlockSparse out;
  out.block = block;
  out.qo_indptr.assign(lists.qo_indptr.begin(), lists.qo_indptr.end());
  out.kv_indptr.assign(lists.kv_indptr.begin(), lists.kv_indptr.end());
  out.indptr.assign(lists.block_indptr.begin(), lists.block_indptr.end());
  out.indices.assign(lists.block_indices.begin(), lists.block_indices.begin() + used);
  out.partial.assign(out.indices.size(), -1);
  return out;
}

Result<BlockSparse> from_pages(const PageTable& pages, BlockSize block) {
  ATTNLOOM_CHECK(check_pages("pages", pages));
  if (block.rows == 0) block.rows = 1;
  if (block.columns == 0) block.columns = block_of_pages(pages);
  ATTNLOOM_CHECK(check_block(block, "block"));
  std::vector<TokenKeys> tokens;
  tokens.reserve(static_cast<std::size_t>(pages.qo_indptr.back()));
  for (std::size_t r = 0; r + 1 < pages.qo_indptr.size(); ++r) {
    TokenKeys path;  // whole pages: add_tokens() ends at the length
    for (std::int32_t i = pages.kv_indptr[r]; i < pages.kv_indptr[r + 1]; ++i) {
      const std::int32_t begin = pages.indices[i] * pages.page_size;
      path.push_back({begin, begin + pages.page_size});
    }
    add_tokens(path, keys_of_pages(pages, static_cast<int>(r)),
               pages.qo_indptr[r + 1] - pages.qo_indptr[r], pages.causal, tokens);
  }
  return whole_batch(tokens, pages.pool_pages * pages.page_size, block);
}

}  // namespace attnloom
