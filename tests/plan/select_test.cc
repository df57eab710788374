// SPDX-License-Identifier: Apache-2.0
#include "plan/select.h"

#include <catch2/catch.hpp>

#include "plan_fixture.h"

namespace attnloom {
namespace {

Selection select(const std::vector<KernelChoice>& kernels, int group_size,
                 const std::vector<int>& qo_lens) {
  test::Batch batch;
  for (const int qo_len : qo_lens) batch.add(qo_len, 100);
  const Spec spec = test::ragged_spec(group_size);
  return select_kernel(spec, kernels, make_row_table(spec, batch.view()).rows);
}

TEST_CASE("requests of one class get that class's kernel") {
  CHECK(select(test::auto_kernels(), 4, {1, 4, 2}).kernel == 0);   // 4 to 16 packed rows
  CHECK(select(test::auto_kernels(), 4, {5, 16}).kernel == 1);     // 20 and 64
  CHECK(select(test::auto_kernels(), 4, {17, 5000}).kernel == 2);  // 68 and far more than any class
  CHECK(select(test::auto_kernels(), 4, {1, 0, 1}).kernel == 0);   // no query tokens, no say
  CHECK(select(test::auto_kernels(), 4, {}).kernel == 0);
  CHECK(select(test::auto_kernels(), 4, {0, 0}).kernel == 0);
}

TEST_CASE("the largest tile serves batches of long prefills only") {
  std::vector<KernelChoice> kernels = test::auto_kernels();
  kernels.insert(kernels.begin() + 3, test::kernel({{256, 64, 2}}));
  CHECK(select(kernels, 4, {2048, 0, 5000}).kernel == 3);  // 8192 packed rows and more
  CHECK(select(kernels, 4, {2047, 5000}).kernel == 2);     // one is shorter: 128 serves both
  CHECK(select(kernels, 4, {4, 5000}).kernel == 4);        // the joint kernel has no 256
  CHECK(select(kernels, 4, {4, 5000}).tile_class == std::pmr::vector<int>{0, 1});
}

TEST_CASE("mixed batches get the joint kernel, each request the next class that it has") {
  const Selection selection = select(test::auto_kernels(), 1, {1, 17, 129, 0, 16});
  CHECK(selection.kernel == 3);
  CHECK(selection.tile_class == std::pmr::vector<int>{0, 1, 1, 0, 0});  // 64 is mapped up to 128
}

TEST_CASE("warpgroups serve each batch with more rows than a decode, but for shared prefixes") {
  std::vector<KernelChoice> kernels = test::auto_kernels();
  kernels.push_back(test::kernel({{128, 128, 2}}));
  kernels.back().family = "attention_wgmma";
  CHECK(select(kernels, 4, {1, 4, 0}).kernel == 0);  // 16 packed rows at most
  CHECK(select(kernels, 4, {5}).kernel == 4);
  CHECK(select(kernels, 4, {1, 1, 5000}).kernel == 4);
  CHECK(select(kernels, 4, {1, 1, 5000}).tile_class == std::pmr::vector<int>{0, 0, 0});
  CHECK(select(kernels, 4, {0}).kernel == 0);
  CHECK(select({kernels.back()}, 4, {1, 5000}).kernel == 0);  // alone it serves all

  test::Batch batch;
  batch.add(1, 100).add(17, 100);
  const Spec spec = test::ragged_spec(4);
  RowTable table = make_row_table(spec, batch.view());
  table.rows.back().member_count = 2;
  CHECK(select_kernel(spec, kernels, table.rows).kernel == 3);
  table.rows.back().member_count = 0;
  CHECK(select_kernel(spec, kernels, table.rows, true).kernel == 3);  // batch-invariant
  CHECK(fixed_kernel(spec, kernels, batch.limits(4)) == 3);
}

TEST_CASE("query tile 1 is for batches of nothing else") {
  std::vector<KernelChoice> kernels = test::auto_kernels();
  kernels.insert(kernels.begin(), test::kernel({{1, 64, 2}}));
  CHECK(select(kernels, 1, {1, 1, 0}).kernel == 0);
  CHECK(select(kernels, 1, {1, 16}).kernel == 1);  // not the joint one
  CHECK(select(kernels, 1, {1, 1, 64}).kernel == 4);
  CHECK(select(kernels, 2, {1, 1}).kernel == 1);
  // Where it is all there is, it serves every batch.
  CHECK(select({kernels[0]}, 4, {1, 100}).kernel == 0);
}

TEST_CASE("a literal tile serves every batch") {
  const Selection selection = select(test::one_kernel(64, 32), 1, {1, 500});
  CHECK(selection.kernel == 0);
  CHECK(selection.tile_class == std::pmr::vector<int>{0, 0});
}

TEST_CASE("a set of a joint kernel alone serves every batch") {
  const std::vector<KernelChoice> joint = {test::kernel({{16, 64, 2}, {128, 64, 2}})};
  const Selection selection = select(joint, 1, {1, 17, 500});
  CHECK(selection.kernel == 0);
  CHECK(selection.tile_class == std::pmr::vector<int>{0, 1, 1});
}

}  // namespace
}  // namespace attnloom
