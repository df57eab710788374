// SPDX-License-Identifier: Apache-2.0
// Warpgroup kernels read keys faster than memory gives them: CTAs should stand at the same requests
// at the same time, so that L2 has what one of them read before. Requests are taken in sections of
// so many bytes of keys and values, and a cut that scatters CTAs over the batch has to be worth
// more. (16 x 1024 without a mask, cut contiguously, read 2.0 GB where 0.34 are needed.) Pure.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <span>
#include <vector>

#include "kernel_templates/loom/plan.cuh"
#include "plan/query_tile.h"
#include "plan/scratch.h"
#include "spec/spec.h"

namespace attnloom {

inline constexpr std::int64_t kSectionBytes = 16 << 20;
// Cost of the longest queue over the mean above which sections are given up, or another cut tried.
inline constexpr double kGoodBalanceOfSections = 1.05;

// The section of each entry, ascending from 0.
std::pmr::vector<int> sections_of(const Spec& spec, int kv_heads,
                                  std::span<const loom::RequestRow> rows, Memory* memory);

// How many of the last of `tiles` are to be cut over all CTAs, where all tiles cost the same and
// whole ones would leave the last wave a few: 4096 items on 132 CTAs are 31 waves and 4 items,
// which took as long as 32. 0 where nothing is gained.
std::int64_t remainder_tiles(std::span<const QueryTile> tiles, int ctas, int kv_heads);

}  // namespace attnloom
