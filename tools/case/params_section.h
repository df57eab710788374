// SPDX-License-Identifier: Apache-2.0
// "inputs.params" of a case file. Pure; thread-safe.
#pragma once

#include "base/status.h"
#include "tools/case/case_file.h"
#include "tools/case/json_node.h"

namespace attnloom {

// Every param of the spec, and no other: a number for a scalar, {dtype, shape, data | random} for a
// pointer. Pointers are not looked at where `options` want no tensors. REQUIRES: file.spec and
// file.q_heads are set.
Status read_params(const JsonNode& inputs, const CaseOptions& options, CaseFile& file);

}  // namespace attnloom
