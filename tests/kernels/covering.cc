// SPDX-License-Identifier: Apache-2.0
#include "kernels/covering.h"

#include <random>
#include <set>
#include <utility>

namespace attnloom::testing {
namespace {

constexpr int kCandidates = 50;

// (factor, value, factor, value) with the lower factor first.
struct Pair {
  int factor_a, value_a, factor_b, value_b;
  auto operator<=>(const Pair&) const = default;
};

std::set<Pair> all_pairs(const std::vector<int>& levels) {
  std::set<Pair> pairs;
  for (int a = 0; a < std::ssize(levels); ++a) {
    for (int b = a + 1; b < std::ssize(levels); ++b) {
      for (int x = 0; x < levels[a]; ++x) {
        for (int y = 0; y < levels[b]; ++y) pairs.insert({a, x, b, y});
      }
    }
  }
  return pairs;
}

std::vector<Pair> pairs_of(const std::vector<int>& row) {
  std::vector<Pair> pairs;
  for (int a = 0; a < std::ssize(row); ++a) {
    for (int b = a + 1; b < std::ssize(row); ++b) pairs.push_back({a, row[a], b, row[b]});
  }
  return pairs;
}

std::vector<int> random_row(const std::vector<int>& levels, std::mt19937_64& random) {
  std::vector<int> row;
  for (int count : levels) row.push_back(static_cast<int>(random() % static_cast<unsigned>(count)));
  return row;
}

}  // namespace

std::vector<std::vector<int>> pairwise_rows(const std::vector<int>& levels, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::set<Pair> missing = all_pairs(levels);
  std::vector<std::vector<int>> rows;
  while (!missing.empty()) {
    std::vector<int> best;
    int best_new = 0;
    for (int i = 0; i < kCandidates; ++i) {
      std::vector<int> row = random_row(levels, random);
      // Each candidate holds one missing pair for certain, so every row makes progress.
      const Pair& wanted = *missing.begin();
      row[static_cast<std::size_t>(wanted.factor_a)] = wanted.value_a;
      row[static_cast<std::size_t>(wanted.factor_b)] = wanted.value_b;
      int fresh = 0;
      for (const Pair& pair : pairs_of(row)) fresh += static_cast<int>(missing.count(pair));
      if (fresh > best_new) {
        best_new = fresh;
        best = std::move(row);
      }
    }
    for (const Pair& pair : pairs_of(best)) missing.erase(pair);
    rows.push_back(std::move(best));
  }
  return rows;
}

std::vector<std::vector<int>> part_of(const std::vector<std::vector<int>>& rows,
                                      CoveringPart part) {
  constexpr std::size_t kNinth = 9;
  std::vector<std::vector<int>> taken;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const CoveringPart owner = i % kNinth == 0 ? CoveringPart::kNinth
                               : i % 2 == 0    ? CoveringPart::kEven
                                               : CoveringPart::kOdd;
    if (owner == part) taken.push_back(rows[i]);
  }
  return taken;
}

std::vector<std::vector<int>> random_rows(const std::vector<int>& levels, int count,
                                          std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::vector<int>> rows;
  for (int i = 0; i < count; ++i) rows.push_back(random_row(levels, random));
  return rows;
}

}  // namespace attnloom::testing
