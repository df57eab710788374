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
  // The bits of 32 columns from `column` on, for consecutive keys. Those of keys that do not exist
  // mean nothing.
  LOOM_DEVICE u32 mask_word(int token, int column) const {
    if (token >= request.q_end) return 0;
    const i64 bit = mask_bit(token, begin + column);
    const u64 low = aligned_word(bit >> 5);
    const u64 high = aligned_word((bit >> 5) + 1);
    return static_cast<u32>((high << 32 | low) >> (bit & 31));
  }

 private:
  // The array ends at any byte: what lies behind the request's last one is not read.
  LOOM_DEVICE u32 aligned_word(i64 word) const {
    const i64 last =
        request.mask_begin + (static_cast<i64>(request.qo_len) * request.kv_len + 7) / 8;
    const unsigned char* bytes = args.custom_mask + word * 4;
    if (word * 4 + 4 <= last) return *reinterpret_cast<const u32*>(bytes);
    u32 bits = 0;
    for (int i = 0; word * 4 + i < last; ++i) bits |= static_cast<u32>(bytes[i]) << (8 * i);
    return bits;
  }
};

// The mask bits of a warp's rows against `columns` consecutive keys. Each lane fetches those of one
// row, and the lanes that need them take them by shuffle: when each lane fetched its own, every
// word was loaded sixteen times and the addresses spilled.
template <class Config, int rows, int columns, bool is_used = Config::kCustomMask && !Config::kBsr>
struct MaskRows {
  static_assert(rows == 16 || rows == 32, "a warp's, one a lane");
  static constexpr int kWords = (columns + 31) / 32;
  u32 words[kWords];

  // `first`: packed row of row 0.
  LOOM_DEVICE MaskRows(const KvColumns<Config>& keys, int first) {
    const int token = (first + (thread_index_now() & (rows - 1))) / Config::kGroupSize;
#pragma unroll
    for (int w = 0; w < kWords; ++w) words[w] = keys.mask_word(token, 32 * w);
  }
  // Of columns [32 * w, 32 * w + 32). REQUIRES: all lanes.
  LOOM_DEVICE u32 of(int row, int w) const {
    return __shfl_sync(~0u, words[w], row);
  }
};
// Where there is no mask, or one that is asked key by key.
template <class Config, int rows, int columns>
struct MaskRows<Config, rows, columns, false> {
  LOOM_DEVICE MaskRows(const KvColumns<Config>&, int) {}
};

}  // namespace loom
