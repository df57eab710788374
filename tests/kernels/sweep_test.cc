// SPDX-License-Identifier: Apache-2.0
// Specs and workloads in combination: a covering array (every pair of values of any two factors)
// against the float64 reference, on a clean simulator or a GPU.
#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "kernels/cells.h"
#include "kernels/covering.h"
#include "kernels/kernel_rig.h"

namespace attnloom::testing {
namespace {

constexpr std::uint64_t kSeed = 20261129;

// The whole product of the factors that choose code (dtypes, head dims, layouts, tiles, functors);
// the others are drawn for each cell. Cells are numbered so that every range of them is spread over
// all factors.
struct Product {
  static constexpr int kFactors[] = {0, 1, 2, 5, 7};
  static constexpr std::int64_t kStep = 48271;  // a prime: no factor of any count of cells here

  static std::int64_t size() {
    std::int64_t cells = 1;
    for (const int factor : kFactors)
      cells *= levels(common_factors())[static_cast<std::size_t>(factor)];
    return cells;
  }
  static std::vector<int> row(std::int64_t cell) {
    std::vector<int> row =
        random_rows(levels(common_factors()), 1, kSeed + 2 + static_cast<std::uint64_t>(cell))
            .front();
    std::int64_t rest = cell * kStep % size();
    for (const int factor : kFactors) {
      const int count = levels(common_factors())[static_cast<std::size_t>(factor)];
      row[static_cast<std::size_t>(factor)] = static_cast<int>(rest % count);
      rest /= count;
    }
    return row;
  }
};

void run_pairs(CoveringPart covering) {
  const std::vector<std::vector<int>> rows = pairwise_rows(levels(common_factors()), kSeed);
  const std::vector<std::vector<int>> part = part_of(rows, covering);
  WARN(part.size() << " of " << rows.size() << " cells, seed " << kSeed);
  run_cells(common_factors(), part, kSeed);
}

}  // namespace

TEST_CASE("a covering array of specs and workloads agrees with the reference, a", "[pairs_a]") {
  run_pairs(CoveringPart::kNinth);
}

TEST_CASE("a covering array of specs and workloads agrees with the reference, b", "[pairs_b]") {
  run_pairs(CoveringPart::kEven);
}

TEST_CASE("a covering array of specs and workloads agrees with the reference, c", "[pairs_c]") {
  run_pairs(CoveringPart::kOdd);
}

TEST_CASE("random cells agree with the reference", "[random]") {
  run_cells(common_factors(), random_rows(levels(common_factors()), 30, kSeed + 1), kSeed);
}

// Not of the suite: tools/full_sweep.py runs it, a range of cells "BEGIN:END" at a time.
TEST_CASE("the product of specs agrees with the reference", "[.full]") {
  const char* range = std::getenv("ATTNLOOM_SWEEP_CELLS");
  long long begin = 0, end = 0;
  REQUIRE(range != nullptr);
  REQUIRE(std::sscanf(range, "%lld:%lld", &begin, &end) == 2);
  REQUIRE((0 <= begin && begin <= end && end <= Product::size()));
  const std::unique_ptr<Engine> engine = make_test_engine(kSeed);
  long long refused = 0;
  for (long long cell = begin; cell < end; ++cell) {
    INFO("again: ATTNLOOM_SWEEP_CELLS=" << cell << ":" << cell + 1
                                        << " build/tests/kernels/sweep_test '[full]'");
    refused += judge_cell(*engine, common_factors(), Product::row(cell), kSeed) ? 0 : 1;
  }
  std::printf("cells %lld:%lld of %lld, %lld refused\n", begin, end,
              static_cast<long long>(Product::size()), refused);
}

}  // namespace attnloom::testing
