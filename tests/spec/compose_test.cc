// SPDX-License-Identifier: Apache-2.0
// variant.compose: the spec that one would have written by hand, or a refusal.
#include "spec/compose.h"

#include <catch2/catch.hpp>

#include "spec/check.h"
#include "spec/parse.h"

namespace attnloom {
namespace {

std::string spec_text(const Json& variant) {
  return Json{{"attnloom", 1},
              {"kernel", "attention"},
              {"target", "sm_90a"},
              {"dtype", {{"q", "bf16"}, {"kv", "bf16"}, {"o", "bf16"}}},
              {"head_dim", {{"qk", 128}, {"vo", 128}}},
              {"group_size", 4},
              {"layout", {{"kv", "ragged"}}},
              {"variant", variant}}
      .dump();
}

ParsedSpec parsed(const char* variant) {
  const Result<ParsedSpec> result = parse_spec(spec_text(Json::parse(variant)));
  INFO(result.status().to_string());
  REQUIRE(result.ok());
  CHECK(check_spec(result->spec).ok());
  CHECK(result->spec.variant.compose.empty());
  return *result;
}

// Equal to the last byte, and so under the same keys.
void same(const char* composed, const char* by_hand) {
  INFO(composed);
  CHECK(canonical_json(spec_to_json(parsed(composed).spec)) ==
        canonical_json(spec_to_json(parsed(by_hand).spec)));
}

void refuse(const char* variant, const std::string& path, const std::string& part) {
  const Result<ParsedSpec> result = parse_spec(spec_text(Json::parse(variant)));
  INFO(variant);
  REQUIRE_FALSE(result.ok());
  CHECK(result.status().path == path);
  INFO(result.status().to_string());
  CHECK(result.status().to_string().find(part) != std::string::npos);
}

TEST_CASE("a member's fields are as if they were written here") {
  same(R"({"compose": ["soft_cap"]})",
       R"({"mask": {"causal": true}, "params": [{"name": "cap", "type": "f32"}],
           "logits_transform": "return cap * loom::tanh(logits / cap);"})");
  same(R"({"compose": ["attention_sink"], "mask": {"window_left": 200}})",
       R"({"mask": {"causal": true, "window_left": 127}, "sink": "sinks",
           "params": [{"name": "sinks", "type": "ptr<f32>"}]})");
}

TEST_CASE("functors are chained in the listed order, the variant's own last") {
  same(R"({"compose": ["soft_cap", "alibi"], "params": [{"name": "t", "type": "f32"}],
           "logits_transform": "return logits + t;"})",
       R"({"mask": {"causal": true},
           "params": [{"name": "cap", "type": "f32"}, {"name": "slopes", "type": "ptr<f32>"},
                      {"name": "t", "type": "f32"}],
           "logits_transform": "logits = [&]() -> float {\nreturn cap * loom::tanh(logits / cap);\n}();\nlogits = [&]() -> float {\nreturn logits - slopes[q_head] * (q_pos - kv_pos);\n}();\nreturn logits + t;"})");
  const Variant masks =
      parsed(R"({"compose": ["tree_mask"], "logits_mask": "return kv_pos != 3;"})").spec.variant;
  CHECK(masks.logits_mask.starts_with("if (![&]() -> bool {\nconst int node"));
  CHECK(masks.logits_mask.ends_with("\n}()) return false;\nreturn kv_pos != 3;"));
  const Variant rows =
      parsed(R"({"compose": ["qk_norm"], "query_transform": "x.scale(2.0f);"})").spec.variant;
  CHECK(rows.query_transform.starts_with("[&]() -> void {\nconst float n"));
  CHECK(rows.query_transform.ends_with("\n}();\nx.scale(2.0f);"));
  CHECK(rows.key_transform.starts_with("const float n"));  // one text stays as it is
}

TEST_CASE("tile masks skip where one says so, and call full what all do") {
  const auto joined = [](const char* variant) { return parsed(variant).spec.variant.tile_mask; };
  const std::string alone = joined(R"({"compose": ["streaming_llm_rope"]})");
  CHECK(alone.starts_with("if (kv_pos_begin"));
  CHECK(joined(R"({"compose": ["streaming_llm_rope", "soft_cap"]})") == alone);
  CHECK(joined(R"({"compose": ["streaming_llm_rope"], "logits_mask": "return kv_pos != 3;",
                   "tile_mask": "return loom::TileMask::kFull;"})") ==
        "return loom::tile_mask_of_all(\n[&]() -> loom::TileMask {\n" + alone +
            "\n}(),\n[&]() -> loom::TileMask {\nreturn loom::TileMask::kFull;\n}());");
  // A mask that says nothing of tiles leaves none full.
  CHECK(joined(R"({"compose": ["streaming_llm_rope"], "logits_mask": "return kv_pos != 3;"})") ==
        "return loom::tile_mask_of_all(\n[&]() -> loom::TileMask {\n" + alone +
            "\n}(),\nloom::TileMask::kPartial);");
}

TEST_CASE("structured masks are intersected") {
  same(R"({"compose": ["causal", "sliding_window"]})",
       R"({"mask": {"causal": true, "window_left": 4095}})");
  same(R"({"compose": ["causal", "sliding_window"], "mask": {"window_left": 100}})",
       R"({"mask": {"causal": true, "window_left": 100}})");
  same(R"({"compose": ["causal"], "mask": {"window_left": "runtime", "custom": true}})",
       R"({"mask": {"causal": true, "window_left": "runtime", "custom": true}})");
}

TEST_CASE("what contradicts is refused, with both sides named") {
  refuse(R"({"compose": ["soft_cup"]})", "$.variant.compose[0]", "did you mean \"soft_cap\"?");
  refuse(R"({"compose": ["append_rope"]})", "$.variant.compose[0]", "no shipped variant");
  refuse(R"({"compose": ["alibi", "alibi"]})", "$.variant.compose[1]", "given twice");
  refuse(R"({"compose": ["sliding_window"], "mask": {"window_left": "runtime"}})", "$.variant",
         "another is 4095");
  refuse(R"({"compose": ["soft_cap"], "params": [{"name": "cap", "type": "i32"}]})", "$.variant",
         "\"cap\" is i32 here and f32 before");
  refuse(R"({"compose": ["attention_sink"], "sink": "mine",
             "params": [{"name": "mine", "type": "ptr<f32>"}]})",
         "$.variant", "\"mine\" beside \"sinks\"");
  refuse(R"({"compose": ["soft_cap", "sigmoid"]})", "$.variant.compose[1]",
         "softmax is false here");
  refuse(R"({"compose": ["sigmoid"], "softmax": true})", "$.variant", "softmax is true here");
  refuse(R"({"compose": ["alibi"], "logits_transform": "return logits;}"})",
         "$.variant.logits_transform", "line 1, column 15 of the text");
}

TEST_CASE("each line of a chained text is someone's") {
  const ParsedSpec spec = parsed(R"({"compose": ["soft_cap", "alibi"],
                                     "logits_transform": "return 2.0f * logits;"})");
  const FieldOrigin& origin = spec.field_lines.at("variant.logits_transform");
  CHECK(origin.members == std::vector<FieldOrigin::Member>{{"soft_cap", 2}, {"alibi", 5}});
  CHECK(origin.own_line == 7);
  CHECK(origin.json_line == 1);
  CHECK(spec.composed == std::vector<std::string>{"soft_cap", "alibi"});
  CHECK(spec.own_functors);
  CHECK(parsed(R"({"compose": ["alibi"]})").field_lines.at("variant.logits_transform").json_line ==
        0);
}

TEST_CASE("every attention spec of examples/specs can be named") {
  const std::vector<std::string> names = shipped_variants();
  CHECK(names.size() >= 12);
  for (const std::string& name : names) CHECK(parse_spec(spec_text({{"compose", {name}}})).ok());
}

}  // namespace
}  // namespace attnloom
