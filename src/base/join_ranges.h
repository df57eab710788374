// SPDX-License-Identifier: Apache-2.0
// Ranges [begin, end) as those that neither overlap nor touch. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace attnloom {

// Sorted; empty ones are left out. In place, as lists of keys are many and short.
template <class Range>
void join_ranges(std::vector<Range>& ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& a, const Range& b) { return a.begin < b.begin; });
  std::size_t kept = 0;
  for (const Range range : ranges) {
    if (range.begin >= range.end) continue;
    if (kept > 0 && range.begin <= ranges[kept - 1].end)
      ranges[kept - 1].end = std::max(ranges[kept - 1].end, range.end);
    else
      ranges[kept++] = range;
  }
  ranges.resize(kept);
}

}  // namespace attnloom
