// SPDX-License-Identifier: Apache-2.0
#include "plan/gangs.h"

namespace attnloom {

std::pmr::vector<int> gang_begins(std::span<const int> gangs_of_items, int gangs, Memory* memory) {
  std::pmr::vector<int> begins(static_cast<std::size_t>(gangs) + 1, 0, memory);
  for (const int gang : gangs_of_items) ++begins[gang + 1];
  for (int g = 0; g < gangs; ++g) begins[g + 1] += begins[g];
  return begins;
}

void gang_queues(std::span<const int> begins, int ctas, int lanes,
                 std::pmr::vector<loom::CtaQueue>* queues) {
  const int end = begins.back();
  queues->assign(static_cast<std::size_t>(ctas), {end, end, 0, 0});
  for (int gang = 0; gang + 1 < std::ssize(begins); ++gang) {
    for (int lane = 0; lane < lanes; ++lane)
      (*queues)[gang * lanes + lane] = {begins[gang], begins[gang + 1], lane, 0};
  }
}

}  // namespace attnloom
