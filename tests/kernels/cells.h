// SPDX-License-Identifier: Apache-2.0
// Cells of a sweep: a spec and a workload made of one value for each factor, and their judgement
// against the float64 reference. A cell that fails is printed as a case file that `attnloom run`
// takes.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "engine/engine.h"

namespace attnloom::testing {

struct DTypesAndScale {
  const char* q;
  const char* kv;
  const char* scale;
};

struct Factors {
  std::vector<DTypesAndScale> dtypes;
  std::vector<std::pair<int, int>> head_dims;  // qk, vo; 8-bit caches take the next multiples of 32
  std::vector<const char*> layouts;            // JSON, here and below
  std::vector<const char*> orders;
  std::vector<int> groups;
  std::vector<const char*> tiles;
  std::vector<const char*> masks;
  std::vector<const char*> functors;                      // shipped variants by name, or JSON
  std::vector<std::vector<std::pair<int, int>>> lengths;  // (query, KV) a request
};

// What most sweeps take.
Factors common_factors();

std::vector<int> levels(const Factors& factors);

// REQUIRES: row has one index per factor, in the order of levels().
Json cell_case(const Factors& factors, const std::vector<int>& row, std::uint64_t seed);

// False where it was refused: a named tile may not fit a head dim, but nothing else is an answer.
bool judge_cell(Engine& engine, const Factors& factors, const std::vector<int>& row,
                std::uint64_t seed);

// Runs and judges cells on one engine; a tenth of them at most may be refused for their tile.
void run_cells(const Factors& factors, const std::vector<std::vector<int>>& rows,
               std::uint64_t seed);

}  // namespace attnloom::testing
