// SPDX-License-Identifier: Apache-2.0
// JSON text -> Spec, strictly: unknown, misspelt and duplicate keys, wrong types and values outside
// the tables are errors that name path and line. Pure; thread-safe.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/json.h"
#include "spec/spec.h"

namespace attnloom {

struct ParsedSpec {
  Spec spec;
  // Line in the user's JSON of each functor field ("variant.logits_transform" -> 9), for compile
  // errors.
  std::map<std::string, int> field_lines;
};

Result<ParsedSpec> parse_spec(std::string_view json_text);
// The same for a spec inside a larger document (a case file); paths in errors start with `root`.
Result<ParsedSpec> parse_spec(const JsonDocument& document, const std::string& root);

// The spec with every default filled in; parse_spec(spec_to_json(s)) == s. canonical_json() of it,
// less the variant's name, is what identifies a spec.
Json spec_to_json(const Spec& spec);

}  // namespace attnloom
