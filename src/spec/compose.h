// SPDX-License-Identifier: Apache-2.0
// variant.compose: a variant built on shipped ones becomes the variant that one would have written
// by hand, so nothing behind the parser knows of it, and the keys are those of the long form.
// docs/SPEC.md has the rule of each field. Pure; thread-safe.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "spec/field_origin.h"
#include "spec/spec.h"

namespace attnloom {

// What the user's JSON said itself, beside values that are also defaults.
struct OwnFields {
  bool softmax = false;
  bool kv_scale = false;
};

// Puts the members of own.compose before `own` and empties the list. `origins` holds the lines of
// the user's own texts and gets those of the members. `root`: the variant's path, for errors:
// SPEC_INVALID for an unknown member or a contradiction.
Result<Variant> compose_variant(Variant own, const OwnFields& given, const std::string& root,
                                FieldOrigins& origins);

// What compose can name.
std::vector<std::string> shipped_variants();

}  // namespace attnloom
