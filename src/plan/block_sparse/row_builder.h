// SPDX-License-Identifier: Apache-2.0
// One row of blocks from the keys that each of its query tokens sees. Costs the ranges and the
// blocks listed, not the keys. Used while a BlockSparse is made; not shared between threads.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/block_sparse/block_sparse.h"

namespace attnloom {

class RowBuilder {
 public:
  // Rows are appended to `out`, which outlives this.
  RowBuilder(BlockSparse* out, std::int32_t kv_len);

  // REQUIRES: 1 to block.rows tokens; ranges within [0, kv_len). False when the entries leave
  // int32: nothing of the row is kept then.
  bool add(std::span<const TokenKeys> tokens);

 private:
  struct Edge {
    std::int64_t column;
    int delta;
  };
  struct Run {
    std::int64_t begin;
    std::int64_t end;
  };

  void take(const TokenKeys& keys);
  void sweep(int tokens);
  void list(std::int64_t column, std::int32_t bits);
  void fill_bits(std::span<const TokenKeys> tokens, std::size_t first_byte);

  BlockSparse& out_;
  std::int64_t kv_len_;
  std::int64_t columns_;
  std::vector<Edge> edges_;            // where a run of columns seen whole by a token ends
  std::vector<Run> whole_;             // columns that all tokens see whole
  std::vector<std::int64_t> in_part_;  // columns of which some token sees some keys
  std::vector<TokenKeys> sorted_;      // of the row's tokens
};

}  // namespace attnloom
