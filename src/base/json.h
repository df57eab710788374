// SPDX-License-Identifier: Apache-2.0
// Strict JSON in, canonical JSON out. Independent of the process locale. Thread-safe: pure
// functions.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace attnloom {

using Json = nlohmann::json;

struct TextPosition {
  int line = 0;    // from 1
  int column = 0;  // from 1
};

// A parsed text with the place of every key and element, by path ("$.variant.mask",
// "$.params[0].name").
struct JsonDocument {
  Json value;
  std::map<std::string, TextPosition> positions;

  // The line of `path`, or of the nearest ancestor that has one; 0 when unknown.
  int line_of(const std::string& path) const;
};

// Refuses with `code`: syntax errors (line:column), duplicate keys, comments, NaN/Infinity
// literals, text after the value, nesting over 64, invalid UTF-8.
Result<JsonDocument> parse_json(std::string_view text, Code code);

// Sorted keys, no white space, shortest round-trip numbers; equal values give equal bytes on every
// machine.
std::string canonical_json(const Json& value);

// The nearest of `known` to `given` by edit distance (at most 3), or "" when none is near.
std::string nearest_name(std::string_view given, const std::vector<std::string>& known);

}  // namespace attnloom
