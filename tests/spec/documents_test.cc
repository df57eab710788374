// SPDX-License-Identifier: Apache-2.0
// docs/SPEC.md and docs/spec.schema.json against the parser: neither may promise what the other
// refuses.
#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "examples.h"
#include "spec/check.h"
#include "spec/parse.h"

namespace attnloom {
namespace {

std::string read_document(const std::string& name) {
  std::ifstream file(std::string(ATTNLOOM_SOURCE_DIR) + "/docs/" + name);
  REQUIRE(file.good());
  return {std::istreambuf_iterator<char>(file), {}};
}

Json schema() {
  const Result<JsonDocument> document =
      parse_json(read_document("spec.schema.json"), Code::kSpecInvalid);
  INFO(document.status().to_string());
  REQUIRE(document.ok());
  return document->value;
}

template <class Value>
Json names(std::span<const TypeRow<Value>> table) {
  Json list = Json::array();
  for (const TypeRow<Value>& row : table) list.push_back(row.json);
  return list;
}

// The keys that the parser knows are those it lists when an unknown one is given to it.
std::vector<std::string> known_keys(const Json& spec, const std::string& remedy_of_path) {
  const Status status = parse_spec(spec.dump()).status();
  INFO(status.to_string());
  REQUIRE(status.path == remedy_of_path);
  const std::string prefix = "known keys: ";
  REQUIRE(status.remedy.rfind(prefix, 0) == 0);
  std::vector<std::string> keys;
  std::string rest = status.remedy.substr(prefix.size());
  while (true) {
    const std::size_t comma = rest.find(", ");
    keys.push_back(rest.substr(0, comma));
    if (comma == std::string::npos) break;
    rest.erase(0, comma + 2);
  }
  std::sort(keys.begin(), keys.end());
  return keys;
}

std::vector<std::string> properties(const Json& object) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.at("properties").items()) keys.push_back(key);
  return keys;
}

constexpr const char* kUnknown = "zzzzzzzzzzzzzzzz";  // near no key

TEST_CASE("the schema has the parser's keys") {
  const Json top = schema();
  const Json& fields = top.at("properties");
  const Json& variant = fields.at("variant");
  Json spec = {{"attnloom", 1},
               {"kernel", "attention"},
               {"dtype", {{"q", "f16"}, {"kv", "f16"}, {"o", "f16"}}},
               {"head_dim", {{"qk", 64}, {"vo", 64}}},
               {"group_size", 1},
               {"layout", {{"kv", "ragged"}}},
               {"tile", "auto"},
               {"variant", Json::object()}};
  const auto with_unknown = [&](const char* pointer) {
    Json changed = spec;
    changed[Json::json_pointer(std::string(pointer) + "/" + kUnknown)] = 1;
    return changed;
  };
  const std::string end = std::string(".") + kUnknown;
  CHECK(properties(top) == known_keys(with_unknown(""), "$" + end));
  CHECK(properties(fields.at("dtype")) == known_keys(with_unknown("/dtype"), "$.dtype" + end));
  CHECK(properties(fields.at("head_dim")) ==
        known_keys(with_unknown("/head_dim"), "$.head_dim" + end));
  CHECK(properties(fields.at("layout")) == known_keys(with_unknown("/layout"), "$.layout" + end));
  CHECK(properties(variant) == known_keys(with_unknown("/variant"), "$.variant" + end));
  spec["variant"]["mask"] = Json::object();
  CHECK(properties(variant.at("properties").at("mask")) ==
        known_keys(with_unknown("/variant/mask"), "$.variant.mask" + end));
  spec["variant"]["params"] = Json::array({Json::object()});
  // rope is read where the kernel uses it only.
  Json rope = append_rope_json();
  rope["variant"]["rope"][kUnknown] = 1;
  CHECK(properties(variant.at("properties").at("rope")) ==
        known_keys(rope, "$.variant.rope" + end));
  CHECK(properties(variant.at("properties").at("params").at("items")) ==
        known_keys(with_unknown("/variant/params/0"), "$.variant.params[0]" + end));
}

TEST_CASE("the schema has the tables' values") {
  const Json top = schema();
  const Json& fields = top.at("properties");
  const Json& variant = fields.at("variant").at("properties");
  CHECK(fields.at("attnloom").at("const") == kSpecVersion);
  CHECK(fields.at("kernel").at("enum") == names(kernel_kinds()));
  CHECK(fields.at("task").at("enum") == names(tasks()));
  CHECK(fields.at("dtype").at("properties").at("kv").at("enum") == names(dtypes()));
  CHECK(fields.at("layout").at("properties").at("kv").at("enum") == names(kv_layouts()));
  CHECK(variant.at("kv_scale").at("enum") == names(kv_scales()));
  CHECK(variant.at("rope").at("properties").at("style").at("enum") == names(rope_styles()));
  CHECK(variant.at("params").at("items").at("properties").at("type").at("enum") ==
        names(param_types()));
}

TEST_CASE("the examples of SPEC.md are specs that this version runs") {
  const std::string page = read_document("SPEC.md");
  int examples = 0;
  for (std::size_t at = page.find("```json\n{"); at != std::string::npos;
       at = page.find("```json\n{", at + 1)) {
    const std::size_t begin = at + 8;
    Result<ParsedSpec> result = parse_spec(page.substr(begin, page.find("```", begin) - begin));
    INFO(result.status().to_string());
    REQUIRE(result.ok());
    if (!result->spec.target) result->spec.target = Target{80};
    const Status status = check_spec(result->spec);
    INFO(status.to_string());
    CHECK(status.ok());
    ++examples;
  }
  CHECK(examples == 5);
}

}  // namespace
}  // namespace attnloom
