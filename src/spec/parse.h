// SPDX-License-Identifier: Apache-2.0
// JSON text -> Spec, strictly: unknown, misspelt and duplicate keys, wrong types and values outside
// the tables are errors that name path and line. Pure; thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "spec/field_origin.h"
#include "spec/spec.h"

namespace attnloom {

struct ParsedSpec {
  Spec spec;
  FieldOrigins field_lines;  // of each functor field, for compile errors
  // The shipped variants that `spec` was composed of, for whoever judges it: spec.variant.compose
  // is empty, as the parser put them in.
  std::vector<std::string> composed;
  bool own_functors = false;  // whether the spec has functors beside theirs
};

Result<ParsedSpec> parse_spec(std::string_view json_text);
// The same for a spec inside a larger document (a case file); paths in errors start with `root`.
Result<ParsedSpec> parse_spec(const JsonDocument& document, const std::string& root);

// The spec with every default filled in; parse_spec(spec_to_json(s)) == s. canonical_json() of it,
// less the variant's name, is what identifies a spec.
Json spec_to_json(const Spec& spec);

}  // namespace attnloom
