// SPDX-License-Identifier: Apache-2.0
// A BlockSparse spelt out as the dense mask that it means, cell by cell and by its own definition,
// to be compared with the mask that a format means. Values.
#pragma once

#include <catch2/catch.hpp>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "plan/block_sparse/converters.h"

namespace attnloom::test {

using Bytes = std::vector<std::uint8_t>;
using Ints = std::vector<std::int32_t>;

inline BlockSparse sparse_or_fail(Result<BlockSparse> result) {
  INFO(result.status().to_string());
  REQUIRE(result.ok());
  return std::move(result).value();
}

// [qo_len][kv_len] of each request in turn.
inline Bytes dense_of(const BlockSparse& sparse) {
  const std::int64_t rows = sparse.block.rows;
  const std::int64_t columns = sparse.block.columns;
  Bytes dense;
  std::size_t row = 0;
  REQUIRE(sparse.partial.size() == sparse.indices.size());
  for (int r = 0; r < sparse.batch(); ++r) {
    const std::int64_t qo_len = sparse.qo_indptr[r + 1] - sparse.qo_indptr[r];
    const std::int64_t kv_len = sparse.kv_indptr[r + 1] - sparse.kv_indptr[r];
    const std::size_t begin = dense.size();
    dense.resize(begin + static_cast<std::size_t>(qo_len * kv_len), 0);
    for (std::int64_t first = 0; first < qo_len; first += rows, ++row) {
      std::set<std::int32_t> listed;
      for (std::int32_t e = sparse.indptr[row]; e < sparse.indptr[row + 1]; ++e) {
        const std::int64_t column = sparse.indices[e];
        REQUIRE(listed.insert(sparse.indices[e]).second);
        REQUIRE(column * columns < kv_len);
        int kept = 0;
        for (std::int64_t cell = 0; cell < rows * columns; ++cell) {
          const std::int64_t token = first + cell / columns;
          const std::int64_t key = column * columns + cell % columns;
          const bool there = token < qo_len && key < kv_len;
          bool keeps = there;
          if (sparse.partial[e] >= 0) {
            const std::size_t byte =
                static_cast<std::size_t>(sparse.partial[e] * ((rows * columns + 7) / 8) + cell / 8);
            keeps = (sparse.bits.at(byte) >> cell % 8 & 1) != 0;
            REQUIRE((there || !keeps));
          }
          kept += keeps ? 1 : 0;
          if (keeps) dense[begin + static_cast<std::size_t>(token * kv_len + key)] = 1;
        }
        REQUIRE(kept > 0);
      }
    }
  }
  REQUIRE(row + 1 == sparse.indptr.size());
  REQUIRE(sparse.indptr.back() == std::ssize(sparse.indices));
  return dense;
}

// Packed as a kernel reads it, bit by bit.
inline Bytes packed(const Ints& qo_indptr, const Ints& kv_indptr, const Bytes& dense) {
  Bytes bytes;
  std::size_t at = 0;
  for (std::size_t r = 0; r + 1 < qo_indptr.size(); ++r) {
    const std::size_t cells = static_cast<std::size_t>(qo_indptr[r + 1] - qo_indptr[r]) *
                              static_cast<std::size_t>(kv_indptr[r + 1] - kv_indptr[r]);
    const std::size_t begin = bytes.size();
    bytes.resize(begin + (cells + 7) / 8, 0);
    for (std::size_t i = 0; i < cells; ++i)
      if (dense[at + i] != 0) bytes[begin + i / 8] |= static_cast<std::uint8_t>(1 << i % 8);
    at += cells;
  }
  return bytes;
}

// The pattern is `dense`; so is its custom mask, and the pattern after re-blocking.
inline void check_means(const BlockSparse& sparse, const Bytes& dense) {
  REQUIRE(dense_of(sparse) == dense);
  Bytes mask(static_cast<std::size_t>(custom_mask_bytes(sparse)), 0xaa);
  write_custom_mask(sparse, mask);
  REQUIRE(mask == packed(sparse.qo_indptr, sparse.kv_indptr, dense));
  for (const BlockSize block : {BlockSize{1, 1}, {2, 3}, {5, 4}, {64, 16}}) {
    const BlockSparse again = sparse_or_fail(reblock(sparse, block));
    REQUIRE(again.block.rows == block.rows);
    REQUIRE(again.qo_indptr == sparse.qo_indptr);
    REQUIRE(again.kv_indptr == sparse.kv_indptr);
    REQUIRE(dense_of(again) == dense);
    if (block.rows == 1 && block.columns == 1) REQUIRE(again.bits.empty());
  }
}

inline int below(std::mt19937& random, int limit) {
  return static_cast<int>(random() % static_cast<unsigned>(limit));
}

inline BlockSize random_block(std::mt19937& random) {
  return {1 + below(random, 7), 1 + below(random, 9)};
}

// `requests` random steps up, of 0 on.
inline Ints random_indptr(std::mt19937& random, int requests, int longest) {
  Ints indptr{0};
  for (int r = 0; r < requests; ++r) indptr.push_back(indptr.back() + below(random, longest + 1));
  return indptr;
}

}  // namespace attnloom::test
