// SPDX-License-Identifier: Apache-2.0
// Page tables that share prefixes, for planner tests.
#pragma once

#include <algorithm>
#include <random>
#include <vector>

#include "plan_fixture.h"

namespace attnloom::test {

// A request with these pages, the last of them full.
inline void add_row(Batch& batch, const std::vector<std::int32_t>& pages, int qo_len,
                    int page_size = 1, int last_page_len = -1) {
  batch.page_indices.insert(batch.page_indices.end(), pages.begin(), pages.end());
  batch.last_page_len.push_back(pages.empty() ? 0 : last_page_len < 0 ? page_size : last_page_len);
  batch.add(qo_len, static_cast<int>(pages.size()));
}

// Requests that grow from one another: each begins with a part of an earlier one's row (or of none)
// and goes on with pages of its own. In no order.
inline Batch random_shared_batch(std::mt19937& random, int page_size, int most_pages) {
  std::vector<std::vector<std::int32_t>> rows;
  std::int32_t next_page = 0;
  const int requests = static_cast<int>(random() % 12);
  for (int r = 0; r < requests; ++r) {
    std::vector<std::int32_t> row;
    if (!rows.empty() && random() % 4 != 0) {
      row = rows[random() % rows.size()];
      row.resize(random() % (row.size() + 1));
    }
    for (int more = static_cast<int>(random() % most_pages); more > 0; --more)
      row.push_back(next_page++);
    rows.push_back(row);
  }
  std::shuffle(rows.begin(), rows.end(), random);
  Batch batch;
  for (const std::vector<std::int32_t>& row : rows)
    add_row(batch, row, static_cast<int>(random() % 4), page_size,
            1 + static_cast<int>(random() % page_size));
  return batch;
}

}  // namespace attnloom::test
