// SPDX-License-Identifier: Apache-2.0
// Covering arrays: few rows in which every pair of values of any two factors meets. Deterministic
// by seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace attnloom::testing {

// `levels[f]` is how many values factor f has; a row holds one value index per factor. Greedy: each
// row is the best of some random candidates, so the array is small but not the smallest.
std::vector<std::vector<int>> pairwise_rows(const std::vector<int>& levels, std::uint64_t seed);

// A covering array in three programs: every ninth row, which is what a plain ./tools/test runs, and
// halves of the others.
enum class CoveringPart { kNinth, kEven, kOdd };
std::vector<std::vector<int>> part_of(const std::vector<std::vector<int>>& rows, CoveringPart part);

// `count` rows drawn at random.
std::vector<std::vector<int>> random_rows(const std::vector<int>& levels, int count,
                                          std::uint64_t seed);

}  // namespace attnloom::testing
