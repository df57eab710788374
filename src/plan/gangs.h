// SPDX-License-Identifier: Apache-2.0
// Gangs: neighbouring CTAs that walk the same items, each on a KV head of its own, so that they
// read the same pages at the same time and an item is written once for all of them. Pure;
// thread-safe.
#pragma once

#include <memory_resource>
#include <span>
#include <vector>

#include "kernel_templates/loom/plan.cuh"
#include "plan/scratch.h"

namespace attnloom {

// Where the items of each gang begin, [gangs + 1]. `gangs_of_items`: the gang of each item.
std::pmr::vector<int> gang_begins(std::span<const int> gangs_of_items, int gangs, Memory* memory);

// The queues of `ctas` CTAs in gangs of `lanes`. CTAs that no gang has find empty ones.
void gang_queues(std::span<const int> begins, int ctas, int lanes,
                 std::pmr::vector<loom::CtaQueue>* queues);

}  // namespace attnloom
