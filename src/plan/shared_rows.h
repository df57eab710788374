// SPDX-License-Identifier: Apache-2.0
// Composable formats: a batch of page tables as rows that share prefixes and rows that do not. Each
// prefix becomes entries of the request table, one for each tile of the query rows that see it, and
// what is left of each request's own keys begins behind it. No index moves: a prefix is a range of
// one member's page row. Pure; deterministic; thread-safe.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <vector>

#include "kernel_templates/loom/plan.cuh"
#include "plan/prefix_tree.h"
#include "plan/scratch.h"
#include "plan/workload.h"
#include "spec/spec.h"

namespace attnloom {

// A request among the query rows of a shared entry. Its rows stand side by side: they never
// straddle two tiles, so a merge finds the state of a tile at one place.
struct SharedMember {
  int entry = 0;    // of the request table
  int request = 0;  // number of the request, which is also its own entry
  int row = 0;      // first packed row within the entry
};

struct SharedRows {
  explicit SharedRows(Memory* memory) : members(memory), tokens(memory), walk_begin(memory) {}

  std::pmr::vector<SharedMember> members;  // by entry; for each request the outermost prefix first
  std::pmr::vector<loom::SharedToken> tokens;
  std::pmr::vector<int> walk_begin;  // [entries] tokens of the walk before an entry's own

  bool empty() const { return members.empty(); }
  int begin_of(int entry) const { return empty() ? 0 : walk_begin[entry]; }
  // Whether the states of entry number `entry` are merged with those of others.
  bool shares(int entry, const loom::RequestRow& row) const {
    return row.member_count > 0 || begin_of(entry) > 0;
  }
};

// How much room a plan object keeps for sharing; what does not fit is not shared.
struct ShareRoom {
  std::int64_t entries = 0;
  std::int64_t members = 0;  // over all entries
  std::int64_t tokens = 0;
  std::int64_t partial_rows = 0;  // on one KV head
  int tile_rows = 0;              // query rows of a prefix tile; 0: nothing is shared
  int least_tile_rows = 0;        // of the class that decode takes beside it
};

// Appends the shared entries to `rows`, which holds one entry a request. Prefixes are what
// workload.levels says, else what the host mirror of the page indices shows and the byte model
// (share_rule.h) finds worth it. REQUIRES: check_workload passed; may_share_prefixes(spec).
SharedRows share_prefixes(const Spec& spec, const Workload& workload, const ShareRoom& room,
                          std::pmr::vector<loom::RequestRow>& rows, Memory* memory = heap());

}  // namespace attnloom
