// SPDX-License-Identifier: Apache-2.0
#include "plan/block_sparse/block_sparse.h"

#include <algorithm>
#include <limits>

#include "base/join_ranges.h"
#include "plan/block_sparse/row_builder.h"
#include "plan/workload_layout.h"

namespace attnloom {
namespace {

constexpr std::int64_t kMaxTotal = std::numeric_limits<std::int32_t>::max();
constexpr int kMaxBlock = 65536;  // of layout.block

// Sets bits [begin, end) of `bytes`, whole bytes at once: a mask of long contexts has 2^34 of them.
void set_bits(std::uint8_t* bytes, std::int64_t begin, std::int64_t end) {
  for (; begin < end && begin % 8 != 0; ++begin)
    bytes[begin / 8] |= static_cast<std::uint8_t>(1 << begin % 8);
  if (const std::int64_t whole = (end - begin) / 8; whole > 0) {
    std::fill_n(bytes + begin / 8, whole, std::uint8_t{0xff});
    begin += whole * 8;
  }
  for (; begin < end; ++begin) bytes[begin / 8] |= static_cast<std::uint8_t>(1 << begin % 8);
}

std::int32_t row_of_request(const BlockSparse& sparse, int request) {
  std::int64_t row = 0;
  for (int r = 0; r < request; ++r) {
    const std::int64_t tokens = sparse.qo_indptr[r + 1] - sparse.qo_indptr[r];
    row += (tokens + sparse.block.rows - 1) / sparse.block.rows;
  }
  return static_cast<std::int32_t>(row);
}

// The keys of one partial block that token `token` of its row sees, as ranges of the request.
void add_bits(const BlockSparse& sparse, std::int32_t block_bits, std::int64_t token,
              std::int32_t first_key, TokenKeys& keys) {
  const std::uint8_t* bits = sparse.bits.data() + block_bits * sparse.bytes_of_block();
  for (std::int32_t k = 0; k < sparse.block.columns; ++k) {
    const std::int64_t bit = token * sparse.block.columns + k;
    if (bits[bit / 8] >> bit % 8 & 1) keys.push_back({first_key + k, first_key + k + 1});
  }
}

}  // namespace

Status check_block(BlockSize block, const std::string& path) {
  for (const int size : {block.rows, block.columns}) {
    if (size >= 1 && size <= kMaxBlock) continue;
    return invalid(path,
                   "wanted 1 to " + text(kMaxBlock) + " query tokens and keys, given " +
                       text(block.rows) + " x " + text(block.columns),
                   "give the layout.block of the spec that will run it");
  }
  return ok_status();
}

Status append_request(std::span<const TokenKeys> tokens, std::int64_t kv_len, BlockSparse* out) {
  const std::string who = "request " + text(out->batch()) + ": ";
  const std::int64_t rows = std::ssize(tokens);
  const std::int64_t qo_end = out->qo_indptr.back() + rows;
  const std::int64_t kv_end = out->kv_indptr.back() + kv_len;
  if (qo_end > kMaxTotal || kv_len > kMaxLength || kv_end > kMaxTotal) {
    return invalid("block_sparse",
                   who + "wanted at most " + text(kMaxTotal) +
                       " query tokens and keys in all and " + text(kMaxLength) +
                       " keys a request, given " + text(qo_end) + ", " + text(kv_end) + " and " +
                       text(kv_len),
                   "split the batch");
  }
  RowBuilder builder(out, static_cast<std::int32_t>(kv_len));
  for (std::int64_t first = 0; first < rows; first += out->block.rows) {
    const std::int64_t count = std::min<std::int64_t>(out->block.rows, rows - first);
    if (builder.add(tokens.subspan(first, count))) continue;
    return invalid("block_sparse.block",
                   who + "wanted at most " + text(kMaxTotal) + " blocks in all, given more",
                   "take larger blocks");
  }
  out->qo_indptr.push_back(static_cast<std::int32_t>(qo_end));
  out->kv_indptr.push_back(static_cast<std::int32_t>(kv_end));
  return ok_status();
}

std::vector<TokenKeys> keys_of_request(const BlockSparse& sparse, int request) {
  const std::int32_t qo_len = sparse.qo_indptr[request + 1] - sparse.qo_indptr[request];
  const std::int64_t kv_len = sparse.kv_indptr[request + 1] - sparse.kv_indptr[request];
  std::vector<TokenKeys> tokens(static_cast<std::size_t>(qo_len));
  std::int32_t row = row_of_request(sparse, request);
  for (std::int64_t first = 0; first < qo_len; first += sparse.block.rows, ++row) {
    const std::int64_t end = std::min<std::int64_t>(first + sparse.block.rows, qo_len);
    for (std::int32_t e = sparse.indptr[row]; e < sparse.indptr[row + 1]; ++e) {
      const std::int64_t key = std::int64_t{sparse.indices[e]} * sparse.block.columns;
      const std::int64_t key_end = std::min<std::int64_t>(key + sparse.block.columns, kv_len);
      const auto begin = static_cast<std::int32_t>(key);
      for (std::int64_t token = first; token < end; ++token) {
        if (sparse.partial[e] < 0)
          tokens[token].push_back({begin, static_cast<std::int32_t>(key_end)});
        else
          add_bits(sparse, sparse.partial[e], token - first, begin, tokens[token]);
      }
    }
  }
  for (TokenKeys& keys : tokens) join_ranges(keys);
  return tokens;
}

std::int64_t custom_mask_bytes(const BlockSparse& sparse) {
  std::int64_t bytes = 0;
  for (int r = 0; r < sparse.batch(); ++r)
    bytes += custom_mask_bytes(sparse.qo_indptr[r + 1] - sparse.qo_indptr[r],
                               sparse.kv_indptr[r + 1] - sparse.kv_indptr[r]);
  return bytes;
}

void write_custom_mask(const BlockSparse& sparse, std::span<std::uint8_t> mask) {
  std::fill(mask.begin(), mask.end(), std::uint8_t{0});
  std::uint8_t* bytes = mask.data();
  for (int r = 0; r < sparse.batch(); ++r) {
    const std::int64_t kv_len = sparse.kv_indptr[r + 1] - sparse.kv_indptr[r];
    const std::vector<TokenKeys> tokens = keys_of_request(sparse, r);
    for (std::int64_t i = 0; i < std::ssize(tokens); ++i)
      for (const KeyRange& range : tokens[i])
        set_bits(bytes, custom_mask_bit(i, range.begin, kv_len),
                 custom_mask_bit(i, range.end, kv_len));
    bytes += custom_mask_bytes(std::ssize(tokens), kv_len);
  }
}

Result<BlockSparse> reblock(const BlockSparse& sparse, BlockSize block) {
  ATTNLOOM_CHECK(check_block(block, "block"));
  BlockSparse out;
  out.block = block;
  for (int r = 0; r < sparse.batch(); ++r)
    ATTNLOOM_CHECK(append_request(keys_of_request(sparse, r),
                                  sparse.kv_indptr[r + 1] - sparse.kv_indptr[r], &out));
  return out;
}

}  // namespace attnloom
