// SPDX-License-Identifier: Apache-2.0
// Shared prefixes that the caller names (Workload::levels): what they must be, and the same
// prefixes as a forest. Pure; thread-safe.
#pragma once

#include "base/status.h"
#include "plan/prefix_tree.h"
#include "plan/scratch.h"
#include "plan/workload.h"
#include "spec/spec.h"

namespace attnloom {

// Refuses, with the level and the request's number: indptr arrays that are none, groups that cut a
// request or overlap a group of the level before without lying in it, more pages than a member's
// row has, or than whole pages of keys that all its queries see where several members share them;
// with a host mirror, members whose pages differ. REQUIRES: the other arrays were checked.
Status check_levels(const Spec& spec, const Workload& workload, Memory* memory);

// A node for each group of several requests with pages. REQUIRES: check_levels passed.
PrefixForest forest_of_levels(const Workload& workload, Memory* memory = heap());

}  // namespace attnloom
