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

// A walk over the partial states of an output tile, in merge order: one run of them, or where
// prefixes are shared a list of runs.
template <class Config>
struct StateRuns {
  const AttentionArgs& args;
  int kv_head;
  const StateRun* next;  // of a list
  int first;             // partial row of the run's first state
  int stride;            // partial rows between two
  int chunks;            // states of the run
  int left;              // states from this run on

  // `lone_stride`: between the states of a tile that nobody shares.
  LOOM_DEVICE StateRuns(const AttentionArgs& args, const MergeTile& tile, int kv_head,
                        int lone_stride)
      : args(args),
        kv_head(kv_head),
        first(tile.partial_row),
        stride(lone_stride),
        chunks(tile.count),
        left(tile.count) {
    if constexpr (Config::kShares) {
      next = plan_table<StateRun>(args, plan_of(args).state_runs_offset) + ~tile.partial_row;
      if (tile.partial_row < 0) take();
    }
  }

  LOOM_DEVICE void advance() {
    left -= chunks;
    if constexpr (Config::kShares) {
      if (left > 0) take();
    }
  }

 private:
  LOOM_DEVICE void take() {
    const StateRun run = *next++;
    first = run.row + kv_head * run.rows;
    stride = plan_of(args).kv_heads * run.rows;
    chunks = run.chunks;
  }
};

}  // namespace loom
