// SPDX-License-Identifier: Apache-2.0
// Patterns of each KV head against the dense mask of each, read through the views that
// converters.h names.
#include <algorithm>
#include <numeric>

#include "dense_mask.h"
#include "plan_fixture.h"

namespace attnloom {
namespace {

using test::below;
using test::Bytes;
using test::check_means;
using test::Ints;
using test::sparse_or_fail;

TEST_CASE("picked pages: each head of a token sees its own, in both orders of a pool") {
  std::mt19937 random(6);
  for (int round = 0; round < 300; ++round) {
    const int page_size = 1 + below(random, 4);
    const int heads = 1 + below(random, 3);
    const int pool = 6;
    const int batch = below(random, 4);
    const Ints qo = test::random_indptr(random, batch, 3);
    Ints shuffled(pool), kv{0}, indices, last;
    std::iota(shuffled.begin(), shuffled.end(), 0);
    for (int r = 0; r < batch; ++r) {
      std::shuffle(shuffled.begin(), shuffled.end(), random);
      const int count = below(random, 5);
      indices.insert(indices.end(), shuffled.begin(), shuffled.begin() + count);
      kv.push_back(static_cast<std::int32_t>(indices.size()));
      last.push_back(count == 0 ? 0 : 1 + below(random, page_size));
    }
    const HeadOrder order = round % 2 == 0 ? HeadOrder::kHnd : HeadOrder::kNhd;
    const std::size_t rows = static_cast<std::size_t>(pool * page_size * heads);
    Ints indptr{0}, picks;
    Bytes dense;
    for (int r = 0; r < batch; ++r) {
      for (int i = qo[r]; i < qo[r + 1]; ++i) {
        for (int h = 0; h < heads; ++h) {
          Bytes row(rows, 0);
          Ints order_of_picks(static_cast<std::size_t>(kv[r + 1] - kv[r]));
          std::iota(order_of_picks.begin(), order_of_picks.end(), 0);
          std::shuffle(order_of_picks.begin(), order_of_picks.end(), random);
          for (const std::int32_t pick : order_of_picks) {
            if (random() % 2 == 0) continue;
            picks.push_back(pick);
            const bool is_last = kv[r] + pick + 1 == kv[r + 1];
            for (int s = 0; s < (is_last ? last[r] : page_size); ++s) {
              const int page = indices[kv[r] + pick];
              row[static_cast<std::size_t>(order == HeadOrder::kHnd
                                               ? page * heads * page_size + h * page_size + s
                                               : page * page_size * heads + s * heads + h)] = 1;
            }
          }
          indptr.push_back(static_cast<std::int32_t>(picks.size()));
          dense.insert(dense.end(), row.begin(), row.end());
        }
      }
    }
    const HeadPages given{{qo, kv, indices, last, page_size, pool}, indptr, picks, heads, order};
    const BlockSparse sparse = sparse_or_fail(
        from_head_pages(given, round % 3 == 0 ? BlockSize{} : test::random_block(random)));
    CHECK(sparse.qo_indptr.back() == qo.back() * heads);
    check_means(sparse, dense);
    if (round % 3 == 0) CHECK_FALSE(needs_custom_mask(sparse));
  }
}

// Steps of 1 to 5 tokens that end at `total`.
Ints random_sizes(std::mt19937& random, int total, int unit) {
  Ints sizes;
  for (int left = total; left > 0; left -= sizes.back() * unit)
    sizes.push_back(std::min(left / unit, 1 + below(random, 5)));
  for (std::int32_t& size : sizes) size *= unit;
  return sizes;
}

TEST_CASE("blocks of varying sizes: each head cuts both axes as it likes") {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    const int heads = 1 + below(random, 3);
    const int unit = 1 + round % 2;
    const int qo_len = unit * (1 + below(random, 9));
    const int kv_len = unit * (1 + below(random, 15));
    Ints row_indptr{0}, row_sizes, column_indptr{0}, column_sizes;
    Bytes map, dense;
    for (int h = 0; h < heads; ++h) {
      const Ints rows = random_sizes(random, qo_len, unit);
      const Ints columns = random_sizes(random, kv_len, unit);
      Bytes of_head;
      for (std::size_t i = 0; i < rows.size() * columns.size(); ++i)
        of_head.push_back(static_cast<std::uint8_t>(random() % 2));
      for (std::size_t i = 0; i < rows.size(); ++i)
        for (int t = 0; t < rows[i]; ++t)
          for (std::size_t j = 0; j < columns.size(); ++j)
            dense.insert(dense.end(), static_cast<std::size_t>(columns[j]),
                         of_head[i * columns.size() + j]);
      map.insert(map.end(), of_head.begin(), of_head.end());
      row_sizes.insert(row_sizes.end(), rows.begin(), rows.end());
      column_sizes.insert(column_sizes.end(), columns.begin(), columns.end());
      row_indptr.push_back(static_cast<std::int32_t>(row_sizes.size()));
      column_indptr.push_back(static_cast<std::int32_t>(column_sizes.size()));
    }
    const HeadBlocks given{row_indptr, row_sizes, column_indptr, column_sizes, map};
    const BlockSparse refined = sparse_or_fail(from_head_blocks(given, {}));
    CHECK(refined.batch() == heads);
    CHECK(refined.block.rows % unit == 0);
    CHECK(refined.block.columns % unit == 0);
    CHECK_FALSE(needs_custom_mask(refined));  // the common refinement
    check_means(refined, dense);
    check_means(sparse_or_fail(from_head_blocks(given, test::random_block(random))), dense);
  }
}

// As block rows that all heads share, and as a list of each head.
TEST_CASE("B43: 48 KV heads x 768 rows of blocks") {
  Ints qo{0, 768}, kv{0, 768 * 16}, indptr{0}, indices;
  for (int row = 0; row < 768; ++row) {
    indices.push_back(row);
    indptr.push_back(row + 1);
  }
  const auto items = [](const Spec& spec, const BlockSparse& sparse, int heads) {
    Workload workload{.q_heads = heads, .kv_heads = heads};
    workload.qo_indptr = sparse.qo_indptr;
    workload.kv_indptr = sparse.kv_indptr;
    workload.block_indptr = sparse.indptr;
    workload.block_indices = sparse.indices;
    const PlanLimits limits{.max_batch = 1,
                            .max_qo_tokens = sparse.qo_indptr.back(),
                            .q_heads = heads,
                            .kv_heads = heads,
                            .sm_count = 132};
    const auto kernels = test::one_kernel(16, 64);
    const Result<Plan> plan = make_plan(spec, kernels, limits, workload, 1);
    INFO(plan.status().to_string());
    REQUIRE(plan.ok());
    return plan->figures.items;
  };
  const BlockSparse shared = sparse_or_fail(from_lists({qo, kv, indptr, indices}, {1, 16}));
  CHECK(items(test::bsr_spec(1, 16), shared, 48) == 36864);

  Ints picks_indptr{0}, picks, pages(768), last{16};
  std::iota(pages.begin(), pages.end(), 0);
  for (int list = 0; list < 48 * 768; ++list) {
    picks.push_back(list / 48);
    picks_indptr.push_back(list + 1);
  }
  const Ints page_indptr{0, 768};
  const BlockSparse own = sparse_or_fail(
      from_head_pages({{qo, page_indptr, pages, last, 16, 768}, picks_indptr, picks, 48}, {}));
  CHECK(own.indices.size() == 36864);
  CHECK(items(test::bsr_spec(1, 16), own, 1) == 36864);
}

}  // namespace
}  // namespace attnloom
