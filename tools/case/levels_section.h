// SPDX-License-Identifier: Apache-2.0
// The section "levels" of a case: shared prefixes, each with the page table of its groups. Pure.
#pragma once

#include "base/status.h"
#include "tools/case/case_file.h"
#include "tools/case/json_node.h"

namespace attnloom {

// Reads `levels`. Where the workload gives no "pages" of its own, the page row of a request is what
// its groups list, one level behind the other, and the pool holds one page more than the largest
// number; else both must agree. REQUIRES: the lengths were read.
Status read_levels(const JsonNode& levels, bool has_pages, CaseFile& file);

}  // namespace attnloom
