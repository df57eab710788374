// SPDX-License-Identifier: Apache-2.0
// A plan as the commands that show it see it: the request table and each CTA's items with their
// cost, read from the value of plan_to_json (per CTA and per head, whatever the bytes of the block
// look like). Values; pure; thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/divide_up.h"
#include "base/json.h"
#include "plan/plan.h"
#include "spec/spec.h"
#include "spec/tiles.h"

namespace attnloom::cli {

// An entry of the request table: a request, or with bsr one row of blocks of a request, or a tile
// of a shared prefix.
struct ViewEntry {
  int request = 0;           // the request's number; of a prefix tile the one whose pages it reads
  std::int64_t qo_len = 0;   // of a prefix tile 0
  std::int64_t q_first = 0;  // query tokens of the entry, within the request
  std::int64_t q_end = 0;
  std::int64_t kv_len = 0;
  std::int64_t walk_len = 0;
  std::int64_t walk_begin = 0;  // keys before it are those of other entries: shared prefixes
  int level = 0;                // of a prefix tile, the outermost 1; else 0
  std::vector<int> members;     // of a prefix tile: requests whose rows it holds, ...
  std::vector<int> merges;      // ... and the merge of each on KV head 0
};

struct KeyRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

struct ViewItem {
  int entry = 0;
  int request = 0;
  std::int64_t q_row = 0;  // first packed row
  std::int64_t rows = 0;   // that the tile has; the class may have more
  int kv_head = 0;
  KeyRange keys;
  int tile_class = 0;
  int merge = -1;    // of a split tile; -1: alone
  int level = 0;     // of a prefix tile; 0: of one request
  double cost = 0;   // in the plan's model
  double start = 0;  // cost of what stands before it in the queue
};

struct PlanView {
  int group_size = 1;
  int kv_heads = 1;
  std::int64_t window = -1;
  std::vector<TileClass> classes;
  std::vector<ViewEntry> entries;
  std::vector<std::vector<ViewItem>> queues;  // one a CTA
  double makespan = 0;                        // cost of the longest queue
  double ideal = 0;                           // the mean
  std::int64_t block_bytes = 0;
};

// Those of requests alone; prefix tiles come behind them.
std::span<const ViewEntry> own_entries(const PlanView& plan);

// The output tiles that the item leaves a state of: none, its own, or with a prefix tile one a
// member.
std::vector<int> merges_of(const PlanView& plan, const ViewItem& item);

PlanView view_plan(const Spec& spec, const Json& plan, const CostModel& cost);

// The keys along the walk that some of `rows` packed rows from `q_row` on can see: all but for
// causal masks and windows. Block-sparse lists count whole.
KeyRange seen_keys(const Spec& spec, const ViewEntry& entry, std::int64_t window,
                   std::int64_t q_row, std::int64_t rows);

// How many of `keys` an item with that tile of the entry walks: a tile of keys is walked whole
// where a row sees its end.
std::int64_t live_tokens(const Spec& spec, const PlanView& view, int entry, std::int64_t q_row,
                         const TileClass& tile, const KeyRange& keys);

}  // namespace attnloom::cli
