// SPDX-License-Identifier: Apache-2.0
// Fields of JSON that this library wrote and reads back from a disk or a wire, where they may be
// anything. (ObjectReader reads what users write, with lines and suggestions.) The functions throw
// FieldFault, which the one reader that calls them catches: nothing of it passes a room's boundary,
// and nobody sees the JSON library's own texts. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "base/json.h"

namespace attnloom {

struct FieldFault {
  std::string cause;
};

inline const Json& field(const Json& json, const char* key) {
  if (!json.is_object()) throw FieldFault{std::string("wanted an object with ") + key};
  const auto found = json.find(key);
  if (found == json.end()) throw FieldFault{std::string("there is no ") + key};
  return *found;
}

inline std::string text_field(const Json& json, const char* key) {
  const Json& value = field(json, key);
  if (!value.is_string()) throw FieldFault{std::string(key) + " is no text"};
  return value.get<std::string>();
}

// The JSON library takes -1 or 1.5 for an unsigned number without a word.
inline std::uint64_t number_field(const Json& json, const char* key) {
  const Json& value = field(json, key);
  if (!value.is_number_unsigned()) throw FieldFault{std::string(key) + " is no whole number"};
  return value.get<std::uint64_t>();
}

inline int int_field(const Json& json, const char* key) {
  const std::uint64_t value = number_field(json, key);
  if (value > static_cast<std::uint64_t>(std::numeric_limits<int>::max()))
    throw FieldFault{std::string(key) + " is too large"};
  return static_cast<int>(value);
}

inline const Json& list_field(const Json& json, const char* key) {
  const Json& value = field(json, key);
  if (!value.is_array()) throw FieldFault{std::string(key) + " is no list"};
  return value;
}

}  // namespace attnloom
