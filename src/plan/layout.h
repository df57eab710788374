// SPDX-License-Identifier: Apache-2.0
// How large the tables of a plan can get, from its limits alone. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.h"
#include "spec/spec.h"
#include "spec/tiles.h"

namespace attnloom {

struct PlanLimits;

// CTAs that a launch of `kernel` has, whatever the batch (a captured graph keeps it): all that are
// resident at once, unless the limits say less.
std::int64_t cta_count(const KernelChoice& kernel, const PlanLimits& limits);

// The class a request's tiles fall back to when no class covers its rows, at its smallest over the
// set.
int largest_query_tile(std::span<const KernelChoice> kernels);

// PLAN_BOUND at "workload.<what>" when more is needed than `limit`, a field of PlanLimits, made
// room for.
Status check_room(const char* what, std::int64_t needed, std::int64_t available, const char* limit);

}  // namespace attnloom
