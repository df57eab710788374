// SPDX-License-Identifier: Apache-2.0
// page_copy: whole pages of a paged cache, keys and values of all heads, are copied to other pages
// of the same cache. Eight lanes move one row, a (token, head) of a page, in 16-byte vectors.
#pragma once

#include "loom/lane_row.cuh"

namespace loom {

template <class Config>
LOOM_DEVICE void page_copy(const PageCopyArgs& args) {
  const i64 row = (static_cast<i64>(blockIdx.x) * Config::kThreads + threadIdx.x) / kRowLanes;
  const i64 rows_per_page = static_cast<i64>(Config::kPageSize) * args.kv_heads;
  if (row >= args.count * rows_per_page) return;
  const i64 pair = row / rows_per_page;
  const i64 from = args.pairs[2 * pair];
  const i64 to = args.pairs[2 * pair + 1];
  const bool inside = from >= 0 && from < args.pool_pages && to >= 0 && to < args.pool_pages;
  if (!inside || from == to) return;
  const i64 row_of_page = row % rows_per_page;
  const i64 token = row_of_page / args.kv_heads;
  const i64 head = row_of_page % args.kv_heads;
  const int lane = static_cast<int>(threadIdx.x) % kRowLanes;
  constexpr int kBytes = Config::kElementBytes;
  u8* k = args.k_cache + (token * args.k_token_stride + head * args.k_head_stride) * kBytes;
  u8* v = args.v_cache + (token * args.v_token_stride + head * args.v_head_stride) * kBytes;
  LaneRow<Config::kHeadDimQk * kBytes> key;
  LaneRow<Config::kHeadDimVo * kBytes> value;
  key.load(k + from * args.k_page_stride * kBytes, lane);
  value.load(v + from * args.v_page_stride * kBytes, lane);
  uint4* k_to = reinterpret_cast<uint4*>(k + to * args.k_page_stride * kBytes);
  uint4* v_to = reinterpret_cast<uint4*>(v + to * args.v_page_stride * kBytes);
  key.for_each(lane, [=](int vector, uint4 bits) { k_to[vector] = bits; });
  value.for_each(lane, [=](int vector, uint4 bits) { v_to[vector] = bits; });
}

}  // namespace loom
