// SPDX-License-Identifier: Apache-2.0
// Global rows -> shared tiles: the only code that knows how K and V lie in memory. All of it is
// asynchronous; pipeline.cuh waits. Eight lanes copy one row, 128 bytes at a time, so any
// page size streams full lines; four where rows have half the bytes, so that finding a row costs no
// more a byte.
#pragma once

#include "loom/columns.cuh"
#include "loom/shared.cuh"
#include "loom/work.cuh"

namespace loom {

constexpr int kQueryLanes = 8;
template <class Config>
constexpr int kKvLanes = sizeof(typename Config::KvElement) == 1 ? 4 : 8;

// Copies the chunks of one row that belong to `lane` of its `lanes`; a row that does not exist
// becomes zeros, so that neither stale shared memory nor an unused cache slot (NaN times a zero
// weight is NaN) can reach a product.
template <int lanes, class Tile, class T>
LOOM_DEVICE void copy_row(const Tile& tile, int row, int lane, const T* from, bool exists) {
  constexpr int kChunk = 16 / sizeof(T);  // elements
  const int bytes = exists ? 16 : 0;
  const u32 to = tile.slab_address(row, lane);
  constexpr int kTailChunks = Tile::kChunks - Tile::kSlabChunks;
#pragma unroll
  for (int i = 0; i < 8; i += lanes) {
#pragma unroll
    for (int slab = 0; slab < Tile::kSlabChunks / 8; ++slab) {
      copy_async_16((to ^ static_cast<u32>(i << 4)) + slab * Tile::kSlabBytes,
                    from + (slab * 8 + i + lane) * kChunk, bytes);
    }
    if (i < kTailChunks && (i + lanes <= kTailChunks || i + lane < kTailChunks)) {
      copy_async_16(tile.tail_address(row, i + lane),
                    from + (Tile::kSlabChunks + i + lane) * kChunk, bytes);
    }
  }
}

// Query rows, packed as token * group + head within the group.
template <class Config, class Crew = WholeCta<Config>, class Tile>
LOOM_DEVICE void copy_queries(const Tile& tile, const AttentionArgs& args,
                              const RequestRow& request, const Work& work) {
  constexpr int kRowsPerPass = Crew::kThreads / kQueryLanes;
  const u16* base = static_cast<const u16*>(args.q);
#pragma unroll 1
  for (int pass = 0; pass < Tile::kRows; pass += kRowsPerPass) {
    const int row = pass + Crew::thread() / kQueryLanes;
    if (Tile::kRows % kRowsPerPass != 0 && row >= Tile::kRows) break;
    const int packed = work.item.q_row + row;
    const int token = packed / Config::kGroupSize;
    const bool exists = token < request.q_end;
    const i64 offset =
        query_row<Config>(args, request, token) * args.q_token_stride +
        (static_cast<i64>(work.kv_head()) * Config::kGroupSize + packed % Config::kGroupSize) *
            args.q_head_stride;
    copy_row<kQueryLanes>(tile, row, Crew::thread() % kQueryLanes, exists ? base + offset : base,
                          exists);
  }
}

// Where the rows of K and V tiles come from. Page and block indices are fetched one tile ahead into
// registers: the copies of a tile must not wait for a dependent load.
template <class Config, int tile_rows>
struct KvSource {
  // Rows of a tile that this lane copies; of a tile smaller than a pass only the first threads do.
  static constexpr int kLanes = kKvLanes<Config>;
  static constexpr int kRowsPerPass = Config::kThreads / kLanes;
  static constexpr int kRows = (tile_rows + kRowsPerPass - 1) / kRowsPerPass;

  using Element = typename Config::KvElement;
  static constexpr bool kIndexed = Config::kPaged || Config::kBsr;
  static constexpr int kIndexedTokens = Config::kBsr ? Config::kBlockColumns : Config::kPageSize;

  // Row functors need the registers: with them the bases are found again for every tile, but beside
  // page indices (4 bytes spilled either way round).
  static constexpr bool kHoldsBases = !kHasRowFunctors<Config> || kIndexed;

  const RequestRow& request;
  const Work& work;
  const Element* k;
  const Element* v;
  const int* pages;  // or blocks
  int kv_end;        // of the walk
  int kv_len;        // bsr only
  int* positions;    // bsr only: [stages][tile_rows] in shared memory
  int page[kRows];

  LOOM_DEVICE KvSource(const AttentionArgs& args, const RequestRow& request, const Work& work,
                       int kv_end, int* positions)
      : request(request),
        work(work),
        k(keys(args)),
        v(values(args)),
        kv_end(kv_end),
        kv_len(request.kv_len),
        positions(positions) {
    if constexpr (kIndexed)
      pages = args.page_indices + (Config::kBsr ? request.list_begin : request.kv_begin);
  }

  // First row of this request and KV head; of a paged one, of page 0.
  LOOM_DEVICE const Element* keys(const AttentionArgs& args) const {
    return first_row(args.k, args.k_page_stride, args.k_token_stride, args.k_head_stride);
  }
  LOOM_DEVICE const Element* values(const AttentionArgs& args) const {
    return first_row(args.v, args.v_page_stride, args.v_token_stride, args.v_head_stride);
  }
  LOOM_DEVICE const Element* first_row(const void* cache, i64 page_stride, i64 token_stride,
                                       i64 head_stride) const {
    const Element* row = static_cast<const Element*>(cache) + work.kv_head() * head_stride;
    if constexpr (Config::kPadded) row += request.batch * page_stride;
    if constexpr (!Config::kPaged) row += request.kv_begin * token_stride;
    return row;
  }

  LOOM_DEVICE static int row_of(int i, int thread) {
    const int row = thread / kLanes;
    // Eight lanes write 128 bytes at once. Where they are two half rows, rows four apart hold them
    // in different banks (rows of 64 bytes do where they are neighbours).
    constexpr bool kFourApart = kLanes == 4 && Config::kHeadDimQk > 64;
    const int dealt = kFourApart ? (row & ~5) | (row & 1) << 2 | (row >> 2 & 1) : row;
    return i * kRowsPerPass + dealt;
  }

  LOOM_DEVICE void fetch_pages(int kv_begin) {
    if constexpr (kIndexed) {
      const int thread = thread_index_now();
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const int token = kv_begin + row_of(i, thread);
        page[i] = token < kv_end ? pages[token / kIndexedTokens] : 0;
      }
    }
  }

  // The key that stands at `token` of the walk, in the block that was fetched for row i; kNoKey
  // where there is none: behind the walk's end, and in a request's last block behind its last key.
  LOOM_DEVICE int key_of_block(int token, int i) const {
    const u32 key = static_cast<u32>(page[i]) * kIndexedTokens + token % kIndexedTokens;
    return token < kv_end && key < static_cast<u32>(kv_len) ? static_cast<int>(key) : kNoKey;
  }

  // REQUIRES: fetch_pages(kv_begin).
  template <class KTile, class VTile>
  LOOM_DEVICE void copy(const AttentionArgs& args, const KTile& k_tile, const VTile& v_tile,
                        int kv_begin, int stage) const {
    const int thread =
        thread_index_now();  // keeps sixteen addresses out of the registers of the KV loop
    const Element* k_base = kHoldsBases ? k : keys(args);
    const Element* v_base = kHoldsBases ? v : values(args);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      if (tile_rows % kRowsPerPass != 0 && row_of(i, thread) >= tile_rows) break;
      const int token = kv_begin + row_of(i, thread);
      bool exists = token < kv_end;
      i64 k_offset;
      i64 v_offset;
      if constexpr (Config::kPaged) {
        const int slot = token % Config::kPageSize;
        k_offset = page[i] * args.k_page_stride + slot * args.k_token_stride;
        v_offset = page[i] * args.v_page_stride + slot * args.v_token_stride;
      } else {
        int row = min(token, kv_end - 1);
        if constexpr (Config::kBsr) {
          const int key = key_of_block(token, i);
          if (thread % kLanes == 0) positions[stage * tile_rows + row_of(i, thread)] = key;
          exists = key != kNoKey;
          row = exists ? key : 0;
        }
        k_offset = row * args.k_token_stride;
        v_offset = row * args.v_token_stride;
      }
      copy_row<kLanes>(k_tile, row_of(i, thread), thread % kLanes, k_base + k_offset, exists);
      copy_row<kLanes>(v_tile, row_of(i, thread), thread % kLanes, v_base + v_offset, exists);
    }
  }
};

}  // namespace loom
