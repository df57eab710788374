// SPDX-License-Identifier: Apache-2.0
// What the columns of a KV tile stand for: the position of each key within its request, and its
// bits of a custom mask. Ragged, padded and paged tiles hold consecutive keys; of block-sparse rows
// the loader leaves the positions in shared memory.
#pragma once

#include "loom/tile.cuh"

namespace loom {

// In place of the position of a key that does not exist: behind every end.
constexpr int kNoKey = 0x7fffffff;

template <class Config>
struct KvColumns {
  const AttentionArgs& args;
  const RequestRow& request;
  const int* positions;  // of the columns, in shared memory; bsr only
  int begin;             // of the walk

  // Where there is no key, kNoKey or a number behind the walk's end.
  LOOM_DEVICE int position(int column) const {
    return Config::kBsr ? positions[column] : begin + column;
  }
  // Of column `first` + `offset`.
  LOOM_DEVICE KvPosition position(int first, int offset) const {
    if constexpr (Config::kBsr) return {{position(first + offset), 0}};
    return {{begin + first, offset}};
  }

  // Bits of the whole mask array; the product of two lengths leaves 32 bits.
  LOOM_DEVICE i64 mask_bit(int token, int position) const {
    return request.mask_begin * 8 + static_cast<i64>(token) * request.kv_len + position;
  }
  // REQUIRES: the key exists.
  LOOM_DEVICE bool mask_keeps(int token, int position) const {
    if (token >= request.q_end) return false;
    const i64 bit = mask_bit(token, position);
    return (args.custom_mask[bit >> 3] >> (bit & 7)) & 1;
  }
};

}  // namespace loom
