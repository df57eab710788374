// SPDX-License-Identifier: Apache-2.0
// A value inside a case file with its path and the error code of its part of the file. Every
// refusal names path and line, what was wanted and what was given. Holds references: the document
// outlives the node. Thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace attnloom {

class JsonNode {
 public:
  JsonNode(const JsonDocument& document, const Json& value, std::string path, Code code)
      : document_(&document), value_(&value), path_(std::move(path)), code_(code) {}

  const Json& value() const { return *value_; }
  const std::string& path() const { return path_; }
  JsonNode with_code(Code code) const { return {*document_, *value_, path_, code}; }

  // Refuses a value that is no object and keys that are not in `known`.
  Status check_keys(std::span<const std::string_view> known) const;
  bool has(std::string_view key) const { return value_->is_object() && value_->contains(key); }
  // Refuses an absent key.
  Result<JsonNode> member(std::string_view key) const;
  // The elements of an array; refuses anything else.
  Result<std::vector<JsonNode>> elements() const;

  Result<std::int64_t> integer(std::int64_t least, std::int64_t most) const;
  Result<std::vector<std::int32_t>> int32s(std::int32_t least = 0) const;  // a list
  // A number, or "nan", "inf", "-inf" where `special` allows them.
  Result<double> number(bool special) const;
  Result<std::string> text() const;

  Status refuse(const std::string& cause, std::string remedy = {}) const;
  Status wanted(const std::string& what) const;  // "wanted WHAT, given VALUE"

 private:
  const JsonDocument* document_;
  const Json* value_;
  std::string path_;
  Code code_;
};

}  // namespace attnloom
