// SPDX-License-Identifier: Apache-2.0
// What holds for a variant whatever the version can run: names, functor texts, params. Applied by
// parse_spec, which knows the user's lines, and by check_spec, for specs that were not parsed.
// Pure; thread-safe.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "spec/spec.h"

namespace attnloom {

// A field of Variant that holds code.
struct FunctorField {
  std::string_view json;
  std::string Variant::*text;
  bool is_body;        // of a function that sees the params; the prelude stands outside of one
  bool returns_value;  // a body without `return` would give undefined values and only a warning
};
std::span<const FunctorField> functor_fields();

// `root` is the path of the variant, "$.variant". Refuses what functor_text.h refuses, a name given
// twice, more than 16 scalars or 8 pointers (loom/plan.cuh has room for so many), a param or
// prelude that no functor can use.
Status check_variant(const Variant& variant, const std::string& root);

}  // namespace attnloom
