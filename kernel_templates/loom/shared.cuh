// SPDX-License-Identifier: Apache-2.0
// Shared prefixes: the query rows of an entry that holds tokens of several requests, and the merges
// that its items contribute to. A variant that tells requests apart has none of it (kShares).
#pragma once

#include "loom/types.cuh"

namespace loom {

constexpr int kMostMembers = 128;  // of a prefix tile: one a row

// Whether the entry is a prefix tile; a constant where there can be none.
template <class Config>
LOOM_DEVICE bool is_shared(const RequestRow& request) {
  return Config::kShares && request.member_count > 0;
}

template <class T>
LOOM_DEVICE const T* plan_table(const AttentionArgs& args, unsigned offset) {
  return reinterpret_cast<const T*>(args.workspace + offset);
}

LOOM_DEVICE const PlanHeader& plan_of(const AttentionArgs& args) {
  return *reinterpret_cast<const PlanHeader*>(args.workspace);
}

// REQUIRES: is_shared(request); token < request.q_end.
LOOM_DEVICE SharedToken shared_token(const AttentionArgs& args, const RequestRow& request,
                                     int token) {
  return plan_table<SharedToken>(args,
                                 plan_of(args).shared_tokens_offset)[request.list_begin + token];
}

// The row in q of token `token` of an entry.
template <class Config>
LOOM_DEVICE i64 query_row(const AttentionArgs& args, const RequestRow& request, int token) {
  if (is_shared<Config>(request) && token < request.q_end)
    return shared_token(args, request, token).token;
  return static_cast<i64>(request.qo_begin) + token;
}

// The partial states of an output tile, in merge order.
template <class Config>
struct StateList {
  int first;   // partial row of the first
  int stride;  // partial rows between two
  int count;
  const int* rows;  // of each, in shared memory; used where prefixes are shared

  LOOM_DEVICE int row(int i) const { return Config::kShares ? rows[i] : first + i * stride; }
};

// `stride`: between the states of a tile that nobody shares. `rows`: shared memory for `count` of
// the tile. REQUIRES: called by all threads of the CTA.
template <class Config>
LOOM_DEVICE StateList<Config> list_states(const AttentionArgs& args, const MergeTile& tile,
                                          int kv_head, int stride, int* rows) {
  if constexpr (Config::kShares) {
    __syncthreads();  // of the list before
    const bool listed = tile.partial_row < 0;
    const StateRun* run =
        plan_table<StateRun>(args, plan_of(args).state_runs_offset) + ~tile.partial_row;
    const int heads = plan_of(args).kv_heads;
    int first = tile.partial_row;
    int chunks = tile.count;
#pragma unroll 1
    for (int at = 0; at < tile.count; at += chunks, ++run) {
      if (listed) {
        first = run->row + kv_head * run->rows;
        stride = heads * run->rows;
        chunks = run->chunks;
      }
#pragma unroll 1
      for (int c = static_cast<int>(threadIdx.x); c < chunks; c += Config::kThreads)
        rows[at + c] = first + c * stride;
    }
    __syncthreads();
  }
  return {tile.partial_row, stride, tile.count, rows};
}

}  // namespace loom
