// SPDX-License-Identifier: Apache-2.0
// What a decode cannot be faster than: reads the same keys and values in the same pages with as
// many CTAs, by the same instruction (16-byte cp.async, page indices a tile ahead), and adds up
// their 32-bit words instead of attending. A thread reads back only what it copied itself, so there
// is no barrier. bench/load_only.py compiles and launches it and compares the sum.
#include "loom/ops.cuh"

namespace load_only {

using loom::i64;
using loom::u32;
using loom::u8;

constexpr int kThreads = 128;
constexpr int kStages = 4;
constexpr int kStageBytes = 16 << 10;  // keys and values together
constexpr int kChunk = 16;

// A range of the keys of one request and KV head.
struct Item {
  int first_page;  // of the request, in page_indices
  int kv_head;
  int begin;
  int end;
};

struct Args {
  const u8* k;
  const u8* v;
  const int* page_indices;
  const Item* items;
  const int* items_begin;  // of each CTA; one more ends the last
  u32* sums;               // one a thread
  i64 page_bytes;          // strides
  i64 token_bytes;
  i64 head_bytes;
  int page_shift;  // log2 of the page size
};

template <int row_bytes>
struct Walk {
  static constexpr int kLanes = row_bytes / 32;  // of a row, as copy.cuh has them
  static constexpr int kRowsPerPass = kThreads / kLanes;
  static constexpr int kTileRows = kStageBytes / 2 / row_bytes;
  static constexpr int kPasses = kTileRows / kRowsPerPass;
  static constexpr int kChunksPerRow = row_bytes / kChunk / kLanes;
  static constexpr int kChunksPerThread = kStageBytes / kChunk / kThreads;

  const Args& args;
  int item;
  int last_item;
  Item now;
  int position;
  int page[kPasses];

  LOOM_DEVICE explicit Walk(const Args& args)
      : args(args),
        item(args.items_begin[blockIdx.x]),
        last_item(args.items_begin[blockIdx.x + 1]) {
    begin_item();
    fetch_pages();
  }

  LOOM_DEVICE bool more() const { return item < last_item; }
  LOOM_DEVICE int token(int pass) const {
    return position + pass * kRowsPerPass + static_cast<int>(threadIdx.x) / kLanes;
  }

  LOOM_DEVICE void begin_item() {
    if (!more()) return;
    now = args.items[item];
    position = now.begin;
  }

  LOOM_DEVICE void fetch_pages() {
    if (!more()) return;
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      page[pass] = token(pass) < now.end
                       ? args.page_indices[now.first_page + (token(pass) >> args.page_shift)]
                       : 0;
    }
  }

  // One tile into `to`, this thread's place in a stage; then the next tile's pages.
  LOOM_DEVICE void copy_tile(u32 to) {
    const int lane = static_cast<int>(threadIdx.x) % kLanes;
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const bool exists = token(pass) < now.end;
      const int slot = token(pass) & ((1 << args.page_shift) - 1);
      const i64 row =
          exists ? page[pass] * args.page_bytes + slot * args.token_bytes : i64{0};
      const i64 at = row + now.kv_head * args.head_bytes + lane * kChunk;
#pragma unroll
      for (int i = 0; i < kChunksPerRow; ++i) {
        loom::copy_async_16(to, args.k + at + i * kLanes * kChunk, exists ? kChunk : 0);
        loom::copy_async_16(to + kThreads * kChunk, args.v + at + i * kLanes * kChunk,
                            exists ? kChunk : 0);
        to += 2 * kThreads * kChunk;
      }
    }
    position += kTileRows;
    if (position >= now.end) {
      ++item;
      begin_item();
    }
    fetch_pages();
  }
};

template <int row_bytes>
LOOM_DEVICE void add_up(const Args& args) {
  extern __shared__ uint4 ring[];
  const u32 base = loom::shared_address(ring) + threadIdx.x * kChunk;
  Walk<row_bytes> walk(args);
  int issued = 0;
  const auto issue = [&] {
    if (walk.more()) {
      walk.copy_tile(base + issued % kStages * kStageBytes);
      ++issued;
    }
    loom::copy_async_commit();  // empty groups too: the waits count groups
  };
#pragma unroll
  for (int i = 0; i < kStages - 1; ++i) issue();
  u32 sum = 0;
#pragma unroll 1
  for (int tile = 0; tile < issued; ++tile) {
    loom::copy_async_wait<kStages - 2>();
    issue();
    const uint4* mine = ring + tile % kStages * (kStageBytes / kChunk) + threadIdx.x;
#pragma unroll
    for (int i = 0; i < Walk<row_bytes>::kChunksPerThread; ++i) {
      const uint4 words = mine[i * kThreads];
      sum += words.x + words.y + words.z + words.w;
    }
  }
  args.sums[blockIdx.x * kThreads + threadIdx.x] = sum;
}

}  // namespace load_only

extern "C" __global__ void __launch_bounds__(128, 3) load_only_256(load_only::Args args) {
  load_only::add_up<256>(args);
}

extern "C" __global__ void __launch_bounds__(128, 3) load_only_128(load_only::Args args) {
  load_only::add_up<128>(args);
}
