// SPDX-License-Identifier: Apache-2.0
// Where the keys of a case lie in its cache: pages, slots and lists of blocks. Pure; thread-safe.
#pragma once

#include "base/status.h"
#include "tools/case/case_file.h"
#include "tools/case/json_node.h"

namespace attnloom {

// Reads workload.pages, or deals the pages out, and replaces file.kv_indptr by that of the pages.
// Reads workload.padded, or sets the requests off by seed; reads workload.bsr. REQUIRES: lengths
// are read.
Status read_layout(const JsonNode& workload, const CaseOptions& options, CaseFile& file);

// Makes file.k_image and file.v_image of file.k and file.v. A slot that several tokens name holds
// the first one's row, and the others' rows of file.k and file.v become that row. WORKLOAD_INVALID
// for a pool past kMaxElements.
Status fill_cache(CaseFile& file);

}  // namespace attnloom
