// SPDX-License-Identifier: Apache-2.0
// Checks that several converters share. Pure; thread-safe.
#pragma once

#include <string>
#include <utility>

#include "plan/block_sparse/converters.h"
#include "plan/workload_layout.h"

namespace attnloom {

// The workload's own checks say "workload.x"; here the caller's struct has another name.
inline Status renamed(Status status, const std::string& group) {
  constexpr std::string_view kPrefix = "workload.";
  if (status.path.rfind(kPrefix, 0) == 0)
    status.path = group + "." + status.path.substr(kPrefix.size());
  return status;
}

inline std::string entry(const std::string& group, const std::string& array, std::int64_t index) {
  return group + "." + array + "[" + text(index) + "]";
}

// Both begin at 0, never decrease, and are of one batch.
Status check_indptrs(const std::string& group, IndexArray qo_indptr, IndexArray kv_indptr);
Status check_indptr_of(const std::string& group, const std::string& array, IndexArray indptr,
                       std::int64_t length);

// Each of the bytes is 0 or 1. `remedy`: what a byte stands for.
Status check_flags(const std::string& group, const std::string& array,
                   std::span<const std::uint8_t> bytes, const std::string& remedy);

// A page table as plan() would take it, and no page twice in a request.
Status check_pages(const std::string& group, const PageTable& pages);
std::int64_t keys_of_pages(const PageTable& pages, int request);
// The largest block of keys that holds no slot behind a request's last token. REQUIRES: checked.
int block_of_pages(const PageTable& pages);

// Keys that query token i of qo_len sees of kv_len in a bottom-right causal mask.
inline std::int64_t causal_keys(std::int64_t i, std::int64_t qo_len, std::int64_t kv_len) {
  const std::int64_t seen = kv_len - qo_len + i + 1;
  return seen < 0 ? 0 : seen;
}

// The first `count` keys of a path of ranges, in its order.
TokenKeys first_keys(const TokenKeys& path, std::int64_t count);

// Appends a request's query tokens that see `path`, or with `causal` their part of it.
void add_tokens(const TokenKeys& path, std::int64_t kv_len, std::int64_t qo_len, bool causal,
                std::vector<TokenKeys>& tokens);

// One request of all `tokens` over `keys` key rows.
Result<BlockSparse> whole_batch(const std::vector<TokenKeys>& tokens, std::int64_t keys,
                                BlockSize block);

}  // namespace attnloom
