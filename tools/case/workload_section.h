// SPDX-License-Identifier: Apache-2.0
// The "workload" of a case file. Pure; thread-safe.
#pragma once

#include "base/status.h"
#include "tools/case/case_file.h"
#include "tools/case/json_node.h"

namespace attnloom {

// Fills lengths, pages, scale, window, order and masks of `file`. REQUIRES: file.spec is set.
Status read_workload(const JsonNode& node, const CaseOptions& options, CaseFile& file);

}  // namespace attnloom
