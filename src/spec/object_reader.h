// SPDX-License-Identifier: Apache-2.0
// Reads the members of one JSON object into typed values; every refusal names path and line. Pure;
// thread-safe. Holds references: the document outlives the reader.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "spec/types.h"

namespace attnloom {

class ObjectReader {
 public:
  // Refuses a value that is no object and a key that is not in `known`.
  static Result<ObjectReader> open(const JsonDocument& document, const Json& value,
                                   std::string path, std::span<const std::string_view> known);

  bool has(std::string_view key) const { return value_->contains(key); }
  // REQUIRES: has(key)
  const Json& at(std::string_view key) const { return *value_->find(key); }
  std::string path(std::string_view key) const { return path_ + "." + std::string(key); }
  Status require(std::string_view key) const;

  // Each leaves `out` as it is where the key is absent. Integers are written without point or
  // exponent: 1.0 and "1" are refused.
  Status read(std::string_view key, bool& out) const;
  Status read(std::string_view key, std::string& out) const;
  Status read(std::string_view key, std::int64_t least, std::int64_t most, int& out) const;

  // `allowed` narrows the table to some of its values; empty allows all.
  template <class Value>
  Status read(std::string_view key, std::span<const TypeRow<Value>> table, Value& out,
              const std::vector<Value>& allowed = {}) const {
    if (!has(key)) return ok_status();
    std::vector<std::string> names;
    for (const TypeRow<Value>& row : table) {
      bool use = allowed.empty();
      for (const Value value : allowed) use = use || value == row.value;
      if (!use) continue;
      if (at(key) == row.json) {
        out = row.value;
        return ok_status();
      }
      names.emplace_back(row.json);
    }
    return not_in_list(key, names);
  }

  Status wrong_type(std::string_view key, std::string_view wanted) const;
  Status refuse(const std::string& path, const std::string& cause, std::string remedy) const;

 private:
  ObjectReader(const JsonDocument& document, const Json& value, std::string path)
      : document_(&document), value_(&value), path_(std::move(path)) {}
  Status not_in_list(std::string_view key, const std::vector<std::string>& names) const;

  const JsonDocument* document_;
  const Json* value_;
  std::string path_;
};

// SPEC_INVALID at `path` with the line of that path in front of the cause.
Status spec_error(const JsonDocument& document, const std::string& path, const std::string& cause,
                  std::string remedy);
// A value as an error shows it: on one line, at most about 60 bytes.
std::string shown(const Json& value);

}  // namespace attnloom
