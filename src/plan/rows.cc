// SPDX-License-Identifier: Apache-2.0
#include "plan/rows.h"

#include <algorithm>

namespace attnloom {
namespace {

// Splits a request into its rows of blocks. `block_row`: the number of its first one in the batch.
void add_block_rows(const Layout& layout, const Workload& workload, loom::RequestRow row,
                    std::int64_t block_row, std::pmr::vector<loom::RequestRow>& rows) {
  for (std::int64_t first = 0; first < row.qo_len; first += layout.block_rows, ++block_row) {
    row.q_first = static_cast<int>(first);
    row.q_end = static_cast<int>(std::min<std::int64_t>(first + layout.block_rows, row.qo_len));
    row.list_begin = workload.block_indptr[block_row];
    row.walk_len = (workload.block_indptr[block_row + 1] - row.list_begin) * layout.block_columns;
    rows.push_back(row);
  }
}

}  // namespace

RowTable make_row_table(const Spec& spec, const Workload& workload, Memory* memory) {
  RowTable table{.rows = std::pmr::vector<loom::RequestRow>(memory)};
  table.rows.reserve(std::max<std::size_t>(workload.block_indptr.size(),
                                           static_cast<std::size_t>(workload.batch())));
  std::int64_t block_row = 0;
  for (int r = 0; r < workload.batch(); ++r) {
    loom::RequestRow row{};
    row.batch = r;
    row.qo_begin = workload.qo_indptr[r];
    row.qo_len = workload.qo_indptr[r + 1] - workload.qo_indptr[r];
    row.q_end = row.qo_len;
    row.kv_begin = workload.kv_indptr[r];
    row.kv_len = static_cast<int>(kv_len(workload, spec.layout, r));
    row.walk_len = row.kv_len;
    if (spec.layout.kv == KvLayout::kPadded)
      row.kv_begin = workload.kv_start.empty() ? 0 : workload.kv_start[r];
    if (spec.variant.mask.custom) {
      row.mask_begin = table.mask_bytes;
      table.mask_bytes += custom_mask_bytes(row.qo_len, row.kv_len);
    }
    if (spec.layout.kv == KvLayout::kBsr) {
      add_block_rows(spec.layout, workload, row, block_row, table.rows);
      block_row += block_row_count(spec.layout, row.qo_len);
    } else {
      table.rows.push_back(row);
    }
  }
  return table;
}

std::int64_t most_rows(const Spec& spec, std::int64_t max_batch, std::int64_t max_qo_tokens) {
  if (spec.layout.kv != KvLayout::kBsr) return max_batch;
  const std::int64_t size = spec.layout.block_rows;
  const std::int64_t requests = std::min(max_batch, max_qo_tokens);  // others have no rows
  return (max_qo_tokens + requests * (size - 1)) / size;
}

}  // namespace attnloom
