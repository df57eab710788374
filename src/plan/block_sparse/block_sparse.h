// SPDX-License-Identifier: Apache-2.0
// BlockSparse: the one value that every sparse format becomes. A row is `block.rows` query tokens
// of one request and lists the columns that they see, blocks of `block.columns` of the request's
// keys; a block that not all of them see whole carries its own bits. Index data only: K and V stay
// where they are.
//
// A request here is a range of query tokens and a range of key rows of K and V, as layout `bsr`
// takes them. A pool of pages that many requests share is one range of keys, so converters from
// page tables and prefix trees make one request of the whole batch. Values and pure functions;
// thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace attnloom {

struct BlockSize {
  int rows = 0;     // query tokens
  int columns = 0;  // keys
};

struct BlockSparse {
  BlockSize block;
  std::vector<std::int32_t> qo_indptr{0};  // [batch + 1] query tokens
  std::vector<std::int32_t> kv_indptr{0};  // [batch + 1] key rows
  std::vector<std::int32_t> indptr{0};     // [rows + 1] entries; a request begins a row
  std::vector<std::int32_t> indices;       // [entries] columns within the request, none twice a row
  std::vector<std::int32_t> partial;       // [entries] number of the block's bits; -1: whole
  // Block by block, each from a byte of its own: row-major [rows][columns], lowest bit first, 1
  // keeps. Tokens and keys that the request does not have are 0.
  std::vector<std::uint8_t> bits;

  int batch() const { return static_cast<int>(qo_indptr.size()) - 1; }
  std::int64_t bytes_of_block() const { return (std::int64_t{block.rows} * block.columns + 7) / 8; }
};

// Sorted, apart and not empty: what join_ranges() makes of any list.
struct KeyRange {
  std::int32_t begin = 0;
  std::int32_t end = 0;
};
using TokenKeys = std::vector<KeyRange>;

// Appends a request of kv_len keys: tokens[i] are the keys that its query token i sees, in any
// order, within [0, kv_len). The first request fixes nothing: `out->block` must be set and checked.
// Errors: WORKLOAD_INVALID for totals past int32, naming the request.
Status append_request(std::span<const TokenKeys> tokens, std::int64_t kv_len, BlockSparse* out);

// The keys that each query token of a request sees, joined.
std::vector<TokenKeys> keys_of_request(const BlockSparse& sparse, int request);

// WORKLOAD_INVALID at `path` for a block that layout `bsr` does not take.
Status check_block(BlockSize block, const std::string& path);

// Bit of a custom mask, counted from the first byte of its request (SPEC.md "Layouts").
inline std::int64_t custom_mask_bit(std::int64_t token, std::int64_t key, std::int64_t kv_len) {
  return token * kv_len + key;
}

// The same pattern as a custom mask alone: what no row lists is 0, so it stands beside layout `bsr`
// and without it. REQUIRES of write: custom_mask_bytes() bytes.
std::int64_t custom_mask_bytes(const BlockSparse& sparse);
void write_custom_mask(const BlockSparse& sparse, std::span<std::uint8_t> mask);

// Whether the lists alone say it all; else a kernel needs mask.custom beside them.
inline bool needs_custom_mask(const BlockSparse& sparse) {
  return !sparse.bits.empty();
}

// The same pattern in other blocks. Where a new block is not seen whole, it gets bits; without
// partial blocks before and with multiples or divisors that fit, there are none after either.
Result<BlockSparse> reblock(const BlockSparse& sparse, BlockSize block);

// The rows of blocks whose packed query rows fill a tile of `tile_rows`: B_r = T_q.
inline int block_rows_of_tile(int tile_rows, int group_size) {
  return tile_rows > group_size ? tile_rows / group_size : 1;
}

}  // namespace attnloom
