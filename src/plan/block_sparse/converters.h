// SPDX-License-Identifier: Apache-2.0
// Sparse formats as they come from serving engines, and the BlockSparse that each means. Views:
// the caller's arrays are read during the call only. Pure; thread-safe.
//
// Errors are WORKLOAD_INVALID; the path begins with the format's name ("pages.last_page_len[2]"),
// the cause names the request or the head.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.h"
#include "plan/block_sparse/block_sparse.h"

namespace attnloom {

using IndexArray = std::span<const std::int32_t>;

// Every query token of a request sees all of its keys. Name: "ragged".
struct RaggedKeys {
  IndexArray qo_indptr;  // [batch + 1]
  IndexArray kv_indptr;  // [batch + 1] tokens
};
Result<BlockSparse> from_ragged(const RaggedKeys& ragged, BlockSize block);

// Lists that exist already. Name: "lists".
struct BlockLists {
  IndexArray qo_indptr;      // [batch + 1]
  IndexArray kv_indptr;      // [batch + 1] tokens
  IndexArray block_indptr;   // [rows + 1]
  IndexArray block_indices;  // columns within the request
};
Result<BlockSparse> from_lists(const BlockLists& lists, BlockSize block);

// One request of all query tokens, over the keys of the whole pool. A block of 0 tokens is 1; of 0
// keys the largest that holds no slot behind a last token: a partial block is read whole, and a bit
// of 0 does not hide a NaN that such a slot may hold (0 * NaN). Positions are those of the pool, so
// causality has to be said here: `causal` keeps keys up to the query's own place at the end of its
// request. Name: "pages".
struct PageTable {
  IndexArray qo_indptr;      // [batch + 1]
  IndexArray kv_indptr;      // [batch + 1] entries of indices
  IndexArray indices;        // no page twice in a request: a mask cannot count a key twice
  IndexArray last_page_len;  // [batch]
  int page_size = 0;
  std::int64_t pool_pages = 0;
  bool causal = false;
};
Result<BlockSparse> from_pages(const PageTable& pages, BlockSize block);

// A prefix (radix) tree over one store of keys: a request sees the tokens of its node and of all
// above it, in that order. One request of all query tokens, as for pages. Name: "tree".
struct PrefixTree {
  IndexArray qo_indptr;   // [batch + 1]
  IndexArray node;        // [batch] where each request ends
  IndexArray parent;      // [nodes] -1: a root; in any order
  IndexArray key_begin;   // [nodes] first key row of the node's tokens
  IndexArray key_count;   // [nodes]
  std::int64_t keys = 0;  // rows of the store
  bool causal = false;
};
Result<BlockSparse> from_prefix_tree(const PrefixTree& tree, BlockSize block);

// Speculative decoding: the query tokens of a request are a tree of drafts, whose own keys lie
// behind its context; each sees the context, its ancestors and itself. Name: "drafts".
struct DraftTrees {
  IndexArray draft_indptr;  // [batch + 1] query tokens
  IndexArray parent;        // [tokens] within the request, -1: the context; in any order
  IndexArray context_len;   // [batch]
};
Result<BlockSparse> from_draft_trees(const DraftTrees& drafts, BlockSize block);

// A byte of 0 or 1 for each query token and key, [qo_len][kv_len] of each request in turn. Name:
// "mask".
struct DenseMask {
  IndexArray qo_indptr;
  IndexArray kv_indptr;  // tokens
  std::span<const std::uint8_t> bytes;
};
Result<BlockSparse> from_mask(const DenseMask& mask, BlockSize block);

// WORKLOAD_INVALID where two descriptions of one pattern differ, with request, query token and key.
Status check_agrees(const BlockSparse& sparse, const DenseMask& mask);

enum class HeadOrder { kHnd, kNhd };  // heads before the tokens of a page, or behind them

// Importance masks (Quest): for each query token and KV head the pages it picks, by their place in
// the request's part of the page table. Heads become query tokens and key rows of one head, by
// views of the same memory: q and o are [tokens * kv_heads][group][dim]; K and V of a pool
// [pages][heads][page_size][dim] (HND) or [pages][page_size][heads][dim] (NHD) are
// [pages * page_size * heads][1][dim]. A block of 0 keys is as for pages with HND, and 1 with NHD,
// whose keys of one head are no neighbours. Name: "picks".
struct HeadPages {
  PageTable pages;    // `causal` is refused: it would have to know which tokens were picked
  IndexArray indptr;  // [query tokens * kv_heads + 1] entries of picks; heads of a token together
  IndexArray picks;   // 0 to the request's pages - 1, none twice a list
  int kv_heads = 0;
  HeadOrder order = HeadOrder::kHnd;
};
Result<BlockSparse> from_head_pages(const HeadPages& picks, BlockSize block);

// Blocks of sizes that vary along both axes and with the head, of one sequence. KV head h becomes
// request h, by views of tensors whose heads come before their tokens: q and o are
// [kv_heads * qo_len][group][dim], K and V [kv_heads * kv_len][1][dim]. A block of 0 tokens or keys
// takes the largest size that needs no bits: the greatest common divisor. Name: "heads".
struct HeadBlocks {
  IndexArray row_indptr;              // [kv_heads + 1] entries of row_sizes
  IndexArray row_sizes;               // query tokens, in each head the same in all
  IndexArray column_indptr;           // [kv_heads + 1]
  IndexArray column_sizes;            // keys
  std::span<const std::uint8_t> map;  // of each head in turn [rows][columns] of 0 and 1
};
Result<BlockSparse> from_head_blocks(const HeadBlocks& heads, BlockSize block);

}  // namespace attnloom
