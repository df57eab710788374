// SPDX-License-Identifier: Apache-2.0
// Whether this version can run a spec on a target: every refusal is a sentence with the field, the
// value given and the values allowed. A field that no kernel would use is refused, never ignored.
// Pure; thread-safe.
#pragma once

#include "base/status.h"
#include "spec/spec.h"

namespace attnloom {

// REQUIRES: spec.target is set (engine fills in the device's own).
Status check_spec(const Spec& spec);

}  // namespace attnloom
