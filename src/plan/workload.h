// SPDX-License-Identifier: Apache-2.0
// Workload: the lengths of one batch, on the host. Views only: the caller keeps the arrays alive
// during the call.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "plan/scratch.h"
#include "spec/spec.h"

namespace attnloom {

struct ScalarParam {
  std::string name;
  double value = 0;
};

// Query tokens that share keys: group i is tokens [qo_indptr[i], qo_indptr[i + 1]) of the batch,
// whole requests all of whose page rows go on with the same page_indptr[i + 1] - page_indptr[i]
// pages behind those of the levels before.
struct SharedLevel {
  std::span<const std::int32_t> qo_indptr;    // [groups + 1]
  std::span<const std::int32_t> page_indptr;  // [groups + 1]
};

struct Workload {
  int q_heads = 0;
  int kv_heads = 0;
  std::span<const std::int32_t> qo_indptr;  // [batch + 1] query tokens
  std::span<const std::int32_t>
      kv_indptr;  // [batch + 1] paged: entries of page_indices; else KV tokens
  std::span<const std::int32_t>
      last_page_len;  // [batch] paged only: tokens in the last page, 0 without a page
  std::span<const std::int32_t>
      page_indices;             // paged only: host mirror; empty = not given, then not checked
  std::int64_t pool_pages = 0;  // paged only: pages in K and V; 0 = not given
  std::span<const std::int32_t>
      kv_start;                  // [batch] padded only: first token in the slot; empty = all 0
  std::int64_t kv_capacity = 0;  // padded only: tokens of a slot; 0 = not given
  std::span<const std::int32_t>
      block_indptr;  // [rows of blocks + 1] bsr only: entries of block_indices, requests in order
  std::span<const std::int32_t>
      block_indices;                 // bsr only: host mirror; empty = not given, then not checked
  std::vector<SharedLevel> levels;   // paged only: known shared prefixes, outermost first
  std::optional<float> scale;        // > 0; nullopt: 1/sqrt(head_dim.qk)
  std::optional<int> window_left;    // given exactly when the spec's window_left is "runtime"
  std::vector<ScalarParam> scalars;  // every scalar param of the spec, any order

  int batch() const { return qo_indptr.empty() ? 0 : static_cast<int>(qo_indptr.size()) - 1; }
};

// Rows of blocks of a request of `qo_len` query tokens; REQUIRES: layout.kv is bsr.
inline std::int64_t block_row_count(const Layout& layout, std::int64_t qo_len) {
  return (qo_len + layout.block_rows - 1) / layout.block_rows;
}

// Of a request's custom mask: one bit a query token and key, from a byte of its own.
inline std::int64_t custom_mask_bytes(std::int64_t qo_len, std::int64_t kv_len) {
  return (qo_len * kv_len + 7) / 8;
}

// KV tokens of a request; REQUIRES: check_workload passed.
std::int64_t kv_len(const Workload& workload, const Layout& layout, int request);

// Refuses, with the array, the index and the values: wrong lengths of arrays, a first entry that is
// not 0, decreasing indptr, last_page_len outside [1, page_size] (0 without pages), page indices
// outside the pool, keys behind a slot's capacity, blocks outside of their request or listed twice
// in a row, levels that are not nested or go past what a member can share, heads that are not
// q_heads == kv_heads * group_size, missing or unknown scalars, a scale that is not finite and > 0,
// window below -1, totals past int32.
Status check_workload(const Spec& spec, const Workload& workload, Memory* memory = heap());

}  // namespace attnloom
