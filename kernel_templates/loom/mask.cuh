// SPDX-License-Identifier: Apache-2.0
// The bits of a custom mask that a tile of query tokens asks of a tile of consecutive keys. They
// are copied with the keys into the same stage: fetched when the logits were there, they cost every
// tile a trip to memory that nothing hid (0.77 of the unmasked kernel). A row begins at any bit, so
// its words are the aligned ones that hold it.
#pragma once

#include "loom/columns.cuh"
#include "loom/work.cuh"

namespace loom {

template <class Config, class Class>
struct MaskTile {
  // Block-sparse rows ask key by key.
  static constexpr bool kUsed = Config::kCustomMask && !Config::kBsr;
  static constexpr int kTokens =  // of packed rows that begin anywhere within a token
      (Class::kQ + Config::kGroupSize - 2) / Config::kGroupSize + 1;
  static constexpr int kWords = (Class::kKv + 62) / 32;  // of a token, from any bit on
  static constexpr int kBytes = kUsed ? (kTokens * kWords * 4 + 15) / 16 * 16 : 0;

  const u32* words;
  const KvColumns<Config>& keys;  // of the tile, from its first column
  int first_token;

  LOOM_DEVICE MaskTile(const void* stage, const KvColumns<Config>& keys, const Work& work)
      : words(static_cast<const u32*>(stage)),
        keys(keys),
        first_token(work.item.q_row / Config::kGroupSize) {}

  LOOM_DEVICE bool keeps(int token, int column) const {
    const u32 bit = bit_of(token, column);
    return (words[(token - first_token) * kWords + (bit >> 5)] >> (bit & 31) & 1) != 0;
  }
  // Bits 0 to 31 are those of the columns from `column` on; of the last 16 columns, bits 0 to 15.
  LOOM_DEVICE u32 word(int token, int column) const {
    const u32* row = words + (token - first_token) * kWords;
    const u32 bit = bit_of(token, column);
    const int index = static_cast<int>(bit >> 5);
    const u64 low = row[index];
    const u64 high = row[min(index + 1, kWords - 1)];
    return static_cast<u32>((high << 32 | low) >> (bit & 31));
  }

 private:
  // Within the words of its token.
  LOOM_DEVICE u32 bit_of(int token, int column) const {
    return (static_cast<u32>(keys.mask_bit(token, keys.begin)) & 31) + column;
  }
};

// Starts the copies of a stage's words. The array ends at any byte: nothing behind the request's
// last one is read; that, and the rows of tokens that do not exist, become zeros. A word that is
// cut is read bytewise (a copy of 4 bytes that reads fewer would do, but memory checkers report
// it). By `thread` of `threads`.
template <class Config, class Class>
LOOM_DEVICE void copy_mask(u32* words, const AttentionArgs& args, const RequestRow& request,
                           const Work& work, int kv_begin, int thread, int threads) {
  using Tile = MaskTile<Config, Class>;
  const KvColumns<Config> keys{args, request, nullptr, kv_begin};
  const i64 end = request.mask_begin + (static_cast<i64>(request.qo_len) * request.kv_len + 7) / 8;
#pragma unroll 1
  for (int i = thread; i < Tile::kTokens * Tile::kWords; i += threads) {
    const int token = work.item.q_row / Config::kGroupSize + i / Tile::kWords;
    const i64 byte = ((keys.mask_bit(token, kv_begin) >> 5) + i % Tile::kWords) * 4;
    const unsigned char* from = args.custom_mask + byte;
    if (token < request.q_end && byte + 4 <= end) {
      copy_async_4(shared_address(words + i), from);
    } else {
      u32 bits = 0;
      const i64 left = token < request.q_end ? end - byte : 0;
      for (int n = 0; n < left; ++n) bits |= static_cast<u32>(from[n]) << (8 * n);
      words[i] = bits;
    }
  }
}

}  // namespace loom
