// SPDX-License-Identifier: Apache-2.0
// The request table of a plan: one entry a request, or with block-sparse rows one a row of blocks,
// so that all query tokens of an entry share one list of keys. Everything behind it (tile classes,
// queues, kernels) sees entries only. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <vector>

#include "kernel_templates/loom/plan.cuh"
#include "plan/scratch.h"
#include "plan/workload.h"
#include "spec/spec.h"

namespace attnloom {

struct RowTable {
  std::pmr::vector<loom::RequestRow> rows;
  std::int64_t mask_bytes = 0;  // of the packed custom masks, each request from a byte of its own
};

// REQUIRES: check_workload passed.
RowTable make_row_table(const Spec& spec, const Workload& workload, Memory* memory = heap());

// The most entries that a batch within these bounds can have.
std::int64_t most_rows(const Spec& spec, std::int64_t max_batch, std::int64_t max_qo_tokens);

// Packed query rows of an entry.
inline std::int64_t packed_rows(const Spec& spec, const loom::RequestRow& row) {
  return std::int64_t{row.q_end - row.q_first} * spec.group_size;
}

}  // namespace attnloom
