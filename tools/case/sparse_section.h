// SPDX-License-Identifier: Apache-2.0
// "padded" and "bsr" of a case's workload. Pure; thread-safe.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "tools/case/case_file.h"
#include "tools/case/json_node.h"

namespace attnloom {

// Without "padded" each request is set off by a few tokens of its own, in slots with room behind
// the longest: what a kernel reads beside a request's own keys is NaN. REQUIRES: lengths are read.
Status read_padded(const JsonNode& workload, const CaseOptions& options, CaseFile& file);

// REQUIRES: lengths are read.
Status read_block_rows(const JsonNode& workload, CaseFile& file);

}  // namespace attnloom
