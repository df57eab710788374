// SPDX-License-Identifier: Apache-2.0
#include "tools/case/json_node.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/joined.h"
#include "spec/object_reader.h"

namespace attnloom {

Status JsonNode::refuse(const std::string& cause, std::string remedy) const {
  const int line = document_->line_of(path_);
  const std::string place = line > 0 ? "line " + std::to_string(line) + ": " : "";
  return make_error(code_, path_, place + cause, std::move(remedy));
}

Status JsonNode::wanted(const std::string& what) const {
  return refuse("wanted " + what + ", given " + shown(*value_));
}

Status JsonNode::check_keys(std::span<const std::string_view> known) const {
  if (!value_->is_object()) return wanted("an object");
  const std::vector<std::string> names(known.begin(), known.end());
  for (const auto& [key, member] : value_->items()) {
    if (std::find(names.begin(), names.end(), key) != names.end()) continue;
    const std::string near = nearest_name(key, names);
    return JsonNode(*document_, member, path_ + "." + key, code_)
        .refuse("unknown key " + shown(Json(key)),
                near.empty() ? "known keys: " + joined(names) : "did you mean \"" + near + "\"?");
  }
  return ok_status();
}

Result<JsonNode> JsonNode::member(std::string_view key) const {
  const std::string path = path_ + "." + std::string(key);
  const auto found = value_->find(key);
  if (found != value_->end()) return JsonNode(*document_, *found, path, code_);
  return JsonNode(*document_, *value_, path, code_)
      .refuse("the key is missing", "add \"" + std::string(key) + "\"");
}

Result<std::vector<JsonNode>> JsonNode::elements() const {
  if (!value_->is_array()) return wanted("a list");
  std::vector<JsonNode> nodes;
  nodes.reserve(value_->size());
  for (std::size_t i = 0; i < value_->size(); ++i) {
    nodes.emplace_back(*document_, (*value_)[i], path_ + "[" + std::to_string(i) + "]", code_);
  }
  return nodes;
}

Result<std::int64_t> JsonNode::integer(std::int64_t least, std::int64_t most) const {
  const std::string what =
      "an integer from " + std::to_string(least) + " to " + std::to_string(most);
  if (!value_->is_number_integer()) return wanted(what);
  if (value_->is_number_unsigned() &&
      value_->get<std::uint64_t>() >
          static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    return wanted(what);
  }
  const auto integer = value_->get<std::int64_t>();
  if (integer < least || integer > most) return wanted(what);
  return integer;
}

Result<std::vector<std::int32_t>> JsonNode::int32s(std::int32_t least) const {
  ATTNLOOM_TRY(const std::vector<JsonNode> nodes, elements());
  std::vector<std::int32_t> integers;
  integers.reserve(nodes.size());
  for (const JsonNode& node : nodes) {
    ATTNLOOM_TRY(const std::int64_t integer,
                 node.integer(least, std::numeric_limits<std::int32_t>::max()));
    integers.push_back(static_cast<std::int32_t>(integer));
  }
  return integers;
}

Result<double> JsonNode::number(bool special) const {
  if (value_->is_number()) return value_->get<double>();
  if (special) {
    if (*value_ == "nan") return std::numeric_limits<double>::quiet_NaN();
    if (*value_ == "inf") return std::numeric_limits<double>::infinity();
    if (*value_ == "-inf") return -std::numeric_limits<double>::infinity();
  }
  return wanted(special ? "a number, \"nan\", \"inf\" or \"-inf\"" : "a number");
}

Result<std::string> JsonNode::text() const {
  if (!value_->is_string()) return wanted("a string");
  return value_->get<std::string>();
}

}  // namespace attnloom
