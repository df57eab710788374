// SPDX-License-Identifier: Apache-2.0
#include "spec/parse.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <locale>
#include <string>

#include "examples.h"

namespace attnloom {
namespace {

Spec parsed(const Json& json) {
  Result<ParsedSpec> result = parse_spec(json.dump());
  INFO(result.status().to_string());
  REQUIRE(result.ok());
  return result->spec;
}

void refuse(const Json& json, const std::string& path, const std::string& part) {
  INFO(json.dump());
  const Status status = parse_spec(json.dump()).status();
  INFO(status.to_string());
  CHECK(status.code == Code::kSpecInvalid);
  CHECK(status.path == path);
  CHECK(status.to_string().find(part) != std::string::npos);
}

// The plain spec with `value` at the JSON pointer.
Json with(const std::string& pointer, Json value) {
  Json json = plain_json();
  json[Json::json_pointer(pointer)] = std::move(value);
  return json;
}
Json without(const std::string& key) {
  Json json = plain_json();
  json.erase(key);
  return json;
}

TEST_CASE("defaults") {
  CHECK(parsed(plain_json()) == plain_spec());
  Spec spec = plain_spec();
  spec.target = std::nullopt;
  CHECK(parsed(without("target")) == spec);
  CHECK(spec.task == Task::kMixed);
  CHECK(spec.tile == TileChoice(AutoTile{}));
  CHECK(spec.variant.softmax);
  CHECK(spec.variant.mask == Mask{false, false, -1});
}

TEST_CASE("every field is read") {
  const Spec spec = parsed(
      Json::parse(R"({"attnloom": 1, "kernel": "attention", "target": "sm_100f", "task": "decode",
    "dtype": {"q": "f16", "kv": "e4m3", "o": "bf16"}, "head_dim": {"qk": 192, "vo": 128}, "group_size": 7,
    "layout": {"kv": "bsr", "block": [16, 1]}, "tile": {"classes": [16, 64]},
    "variant": {"name": "all", "mask": {"causal": true, "window_left": 5, "custom": true},
      "params": [{"name": "cap", "type": "f32"}, {"name": "s", "type": "ptr<f32>"}], "softmax": false, "sink": "s",
      "kv_scale": "head", "prelude": "int p();", "logits_transform": "return cap;", "logits_mask": "return 1;",
      "tile_mask": "return 2;", "output_transform": "return 3;", "query_transform": "x[0] = 1;",
      "key_transform": "x[0] = 2;", "value_transform": "x[0] = 3;", "compose": []}})"));
  Spec want;
  want.target = Target{100, 'f'};
  want.task = Task::kDecode;
  want.dtype = {DType::kF16, DType::kE4m3, DType::kBf16};
  want.head_dim = {192, 128};
  want.group_size = 7;
  want.layout = {KvLayout::kBsr, 0, 16, 1};
  want.tile = JointTile{{16, 64}};
  Variant& variant = want.variant;
  variant.name = "all";
  variant.mask = {true, true, 5};
  variant.params = {{"cap", ParamType::kF32}, {"s", ParamType::kPtrF32}};
  variant.softmax = false;
  variant.sink = "s";
  variant.kv_scale = KvScale::kHead;
  variant.prelude = "int p();";
  variant.logits_transform = "return cap;";
  variant.logits_mask = "return 1;";
  variant.tile_mask = "return 2;";
  variant.output_transform = "return 3;";
  variant.query_transform = "x[0] = 1;";
  variant.key_transform = "x[0] = 2;";
  variant.value_transform = "x[0] = 3;";
  CHECK(spec == want);
  CHECK(parsed(spec_to_json(spec)) == spec);
}

TEST_CASE("spec_to_json fills in defaults and is read back as the same spec") {
  CHECK(
      canonical_json(spec_to_json(plain_spec())) ==
      R"({"attnloom":1,"dtype":{"kv":"bf16","o":"bf16","q":"bf16"},"group_size":4,"head_dim":{"qk":128,"vo":128},)"
      R"("kernel":"attention","layout":{"kv":"ragged"},"target":"sm_90a","task":"mixed","tile":"auto",)"
      R"("variant":{"compose":[],"kv_scale":"none","mask":{"causal":false,"custom":false,"window_left":-1},)"
      R"("name":"plain","params":[],"softmax":true}})");
  Spec spec = plain_spec();
  spec.variant.mask.window_left = std::nullopt;
  spec.layout = {KvLayout::kPaged, 16};
  spec.tile = FixedTile{64, 32};
  CHECK(parsed(spec_to_json(spec)) == spec);
  spec.tile = FixedTile{128, 64, TileFamily::kWgmma};
  CHECK(spec_to_json(spec)["tile"]["family"] == "attention_wgmma");
  CHECK(parsed(spec_to_json(spec)) == spec);
  Spec merge;
  merge.kernel = KernelKind::kMerge;
  merge.dtype.o = DType::kF16;
  merge.head_dim.vo = 64;
  CHECK(canonical_json(spec_to_json(merge)) ==
        R"({"attnloom":1,"dtype":{"o":"f16"},"head_dim":{"vo":64},"kernel":"merge"})");
  CHECK(parsed(spec_to_json(merge)) == merge);
  for (const Json& cache : {append_json(), append_rope_json(), page_copy_json()}) {
    const Spec read = parsed(cache);
    CHECK(parsed(spec_to_json(read)) == read);
  }
  CHECK(
      canonical_json(spec_to_json(parsed(append_rope_json()))) ==
      R"({"attnloom":1,"dtype":{"kv":"e4m3","q":"bf16"},"head_dim":{"qk":128,"vo":64},)"
      R"("kernel":"append_rope","layout":{"kv":"paged","page_size":16},"target":"sm_90a",)"
      R"("variant":{"kv_scale":"none","name":"plain","rope":{"rotary_dim":128,"style":"neox"}}})");
}

TEST_CASE("unknown, misspelt and duplicate keys: B115") {
  refuse(with("/causl", true), "$.causl", "line 1: unknown key \"causl\"");
  refuse(with("/head_dims", 1), "$.head_dims", "did you mean \"head_dim\"?");
  refuse(with("/variant", {{"mask", {{"causl", true}}}}), "$.variant.mask.causl",
         "did you mean \"causal\"?");
  refuse(with("/variant", {{"mask", {{"window_left ", 4}}}}), "$.variant.mask.window_left ",
         "did you mean \"window_left\"?");
  refuse(with("/variant", {{"params", {{{"name", "a"}, {"type", "f32"}, {"unit", 1}}}}}),
         "$.variant.params[0].unit", "known keys: name, type");
  refuse(with("/a\nb", 1), "$", "unknown key \"a\\nb\"");
  const Status duplicate =
      parse_spec("{\"attnloom\": 1,\n \"kernel\": \"merge\",\n \"kernel\": \"merge\"}").status();
  CHECK(duplicate.code == Code::kSpecInvalid);
  CHECK(duplicate.path == "$.kernel");
  CHECK(duplicate.cause.find("line 3") != std::string::npos);
  const Status line =
      parse_spec("{\"attnloom\": 1,\n \"kernel\": \"merge\",\n\n \"dtypes\": {}}").status();
  CHECK(line.cause == "line 4: unknown key \"dtypes\"");
}

TEST_CASE("missing keys") {
  for (const char* key : {"attnloom", "kernel", "dtype", "head_dim", "group_size", "layout"}) {
    refuse(without(key), std::string("$.") + key, "the key is missing");
  }
  refuse(with("/dtype", {{"q", "f16"}, {"kv", "f16"}}), "$.dtype.o", "the key is missing");
  refuse(with("/head_dim", {{"vo", 64}}), "$.head_dim.qk", "the key is missing");
  refuse(with("/layout", {{"kv", "paged"}}), "$.layout.page_size", "the key is missing");
  refuse(with("/layout", {{"kv", "bsr"}}), "$.layout.block", "the key is missing");
  refuse(with("/tile", {{"q", 16}}), "$.tile.kv", "the key is missing");
  CHECK(parse_spec("{}").status().path == "$.attnloom");
}

TEST_CASE("values outside the lists") {
  for (const int version : {2, 0, -1})
    refuse(with("/attnloom", version), "$.attnloom", "given " + std::to_string(version));
  refuse(with("/attnloom", 1.0), "$.attnloom", "given 1.0");
  refuse(with("/attnloom", true), "$.attnloom", "given true");
  refuse(with("/kernel", "atention"), "$.kernel", "did you mean \"attention\"?");
  refuse(with("/dtype/q", "half; #include \"/etc/passwd\""), "$.dtype.q",
         "wanted one of f16, bf16");
  refuse(with("/dtype/q", "e4m3"), "$.dtype.q", "wanted one of f16, bf16, given \"e4m3\"");
  refuse(with("/dtype/kv", "fp8"), "$.dtype.kv", "f16, bf16, e4m3, e5m2");
  refuse(with("/task", nullptr), "$.task", "mixed, decode, prefill");
  refuse(with("/target", "compute_90"), "$.target", "virtual target");
  refuse(with("/target", "sm_90b"), "$.target", "wanted sm_NN");
  refuse(with("/target", ""), "$.target", "leave the key out");
  refuse(with("/layout/kv", "pages"), "$.layout.kv", "did you mean \"paged\"?");
  refuse(with("/layout/page_size", 16), "$.layout.page_size", "only layout \"paged\"");
  refuse(with("/layout/block", {1, 1}), "$.layout.block", "only layout \"bsr\"");
  refuse(with("/variant", {{"kv_scale", "row"}}), "$.variant.kv_scale", "none, tensor, head");
  refuse(with("/variant", {{"params", {{{"name", "a"}, {"type", "f64"}}}}}),
         "$.variant.params[0].type", "ptr<u8>");
}

TEST_CASE("wrong types: an integer is written as one") {
  refuse(Json::array(), "$", "wanted an object");
  refuse(with("/dtype", "bf16"), "$.dtype", "wanted an object");
  for (const Json& bad : {Json(4.0), Json("4"), Json(0), Json(-1), Json(2147483648),
                          Json(18446744073709551615u), Json()}) {
    refuse(with("/group_size", bad), "$.group_size", "wanted an integer from 1 to 2147483647");
    refuse(with("/head_dim/vo", bad), "$.head_dim.vo", "wanted an integer from 1 to 2147483647");
  }
  for (const Json& bad :
       {Json::array({16}), Json::array({16, 0}), Json::array({16, 1.0}), Json(16)}) {
    Json json = with("/layout", {{"kv", "bsr"}});
    json["layout"]["block"] = bad;
    refuse(json, "$.layout.block", "[query tokens, KV tokens]");
  }
  for (const Json& bad : {Json(-2), Json(2147483648)}) {
    refuse(with("/variant", {{"mask", {{"window_left", bad}}}}), "$.variant.mask.window_left",
           "from -1 to");
  }
  refuse(with("/variant", {{"mask", {{"window_left", "Runtime"}}}}), "$.variant.mask.window_left",
         "\"runtime\" or");
  refuse(with("/variant", {{"mask", {{"causal", 1}}}}), "$.variant.mask.causal", "true or false");
  refuse(with("/variant", {{"softmax", "no"}}), "$.variant.softmax", "true or false");
  refuse(with("/variant", {{"logits_mask", 1}}), "$.variant.logits_mask", "a string");
  refuse(with("/variant", {{"logits_mask", ""}}), "$.variant.logits_mask", "leave the key out");
  refuse(with("/variant", {{"params", "cap"}}), "$.variant.params", "a list");
  refuse(with("/variant", {{"compose", {1}}}), "$.variant.compose", "a list");
  refuse(with("/variant", {{"tile_mask", "return loom::TileMask::kSkip;"}}), "$.variant.tile_mask",
         "without logits_mask");
  refuse(with("/tile", 16), "$.tile", "\"auto\"");
  refuse(with("/tile", "Auto"), "$.tile", "\"auto\"");
  refuse(with("/tile", {{"q", 16}, {"kv", 64}, {"classes", {16}}}), "$.tile.q", "stands beside");
  refuse(with("/tile", {{"classes", {64, 16}}}), "$.tile.classes", "ascending");
  refuse(with("/tile", {{"classes", {16, 16}}}), "$.tile.classes", "ascending");
}

TEST_CASE("merge takes its own keys only") {
  const Json merge = Json::parse(
      R"({"attnloom": 1, "kernel": "merge", "dtype": {"o": "f16"}, "head_dim": {"vo": 64}})");
  CHECK(parsed(merge).dtype.o == DType::kF16);
  const auto and_key = [&](const std::string& pointer, Json value) {
    Json json = merge;
    json[Json::json_pointer(pointer)] = std::move(value);
    return json;
  };
  refuse(and_key("/group_size", 1), "$.group_size", "\"merge\" does not use this key");
  refuse(and_key("/variant", Json::object()), "$.variant", "\"merge\" does not use this key");
  refuse(and_key("/dtype/q", "f16"), "$.dtype.q", "\"merge\" does not use this key");
  refuse(and_key("/head_dim/qk", 64), "$.head_dim.qk", "\"merge\" does not use this key");
  refuse(and_key("/head_dim", Json::object()), "$.head_dim.vo", "the key is missing");
  CHECK(parsed(and_key("/target", "sm_80")).target == Target{80});
}

TEST_CASE("append, append_rope and page_copy take their own keys only") {
  const auto and_key = [](Json json, const std::string& pointer, Json value) {
    json[Json::json_pointer(pointer)] = std::move(value);
    return json;
  };
  const auto refused_in = [&](const Json& json, const std::string& pointer, Json value) {
    std::string path = "$" + pointer;
    std::replace(path.begin(), path.end(), '/', '.');
    refuse(and_key(json, pointer, std::move(value)), path,
           json["kernel"].dump() + " does not use this key");
  };
  for (const Json& json : {append_json(), append_rope_json(), page_copy_json()}) {
    refused_in(json, "/group_size", 1);
    refused_in(json, "/task", "decode");
    refused_in(json, "/tile", "auto");
    refused_in(json, "/dtype/o", "bf16");
    for (const char* key : {"dtype", "head_dim", "layout"}) {
      Json without = json;
      without.erase(key);
      refuse(without, std::string("$.") + key, "the key is missing");
    }
  }
  for (const Json& json : {append_json(), append_rope_json()}) {
    refused_in(json, "/variant/mask", {{"causal", true}});
    refused_in(json, "/variant/softmax", true);
    refused_in(json, "/variant/params", Json::array());
    refused_in(json, "/variant/key_transform", "x[0] = 1;");
    refused_in(json, "/variant/compose", Json::array());
    refuse(and_key(json, "/dtype", {{"q", "bf16"}}), "$.dtype.kv", "the key is missing");
  }
  refused_in(append_json(), "/variant/rope", {{"style", "neox"}});
  refused_in(plain_json(), "/variant/rope", {{"style", "neox"}});
  refused_in(page_copy_json(), "/variant", Json::object());
  refused_in(page_copy_json(), "/dtype/q", "bf16");
  CHECK(parsed(and_key(append_json(), "/variant/kv_scale", "head")).variant.kv_scale ==
        KvScale::kHead);
}

TEST_CASE("rope names its style, and its length where it is not the key's") {
  Json json = append_rope_json();
  CHECK(parsed(json).variant.rope == Rope{RopeStyle::kNeox, 128});
  Json& rope = json["variant"]["rope"];
  rope = {{"style", "interleaved"}, {"rotary_dim", 64}};
  CHECK(parsed(json).variant.rope == Rope{RopeStyle::kInterleaved, 64});
  rope = {{"style", "gptj"}};
  refuse(json, "$.variant.rope.style", "wanted one of neox, interleaved");
  rope = {{"rotary_dim", 64}};
  refuse(json, "$.variant.rope.style", "the key is missing");
  rope = {{"style", "neox"}, {"theta", 10000}};
  refuse(json, "$.variant.rope.theta", "known keys: style, rotary_dim");
  json["variant"].erase("rope");
  refuse(json, "$.variant.rope", "the key is missing");
  json.erase("variant");
  refuse(json, "$.variant", "the key is missing");
}

TEST_CASE("names and functor texts are checked where they stand: B121") {
  refuse(with("/variant", {{"name", "x(){} extern \"C\" __global__ void y"}}), "$.variant.name",
         "is not a name");
  refuse(with("/variant", {{"compose", {"../x"}}}), "$.variant.compose[0]", "is not a name");
  const Status status = parse_spec(
                            "{\"attnloom\": 1, \"kernel\": \"attention\",\n"
                            "\"dtype\": {\"q\": \"f16\", \"kv\": \"f16\", \"o\": \"f16\"},\n"
                            "\"head_dim\": {\"qk\": 64, \"vo\": 64}, \"group_size\": 1,\n"
                            "\"layout\": {\"kv\": \"ragged\"}, \"variant\": {\n"
                            "\"logits_mask\": \"return 1;\\n}\"}}")
                            .status();
  CHECK(status.path == "$.variant.logits_mask");
  CHECK(status.cause ==
        "line 5: '}' closes nothing inside the text (line 2, column 1 of the text)");
}

TEST_CASE("each functor's line is known, inside a larger document too") {
  const std::string text =
      "{\"case\": 1, \"specs\": [7,\n" +
      plain_json().dump().insert(
          1,
          "\"variant\": {\n\n"
          "\"prelude\": \"int f();\", \"logits_mask\": \n \"return f();\"},\n ") +
      "]}";
  const Result<JsonDocument> document = parse_json(text, Code::kSpecInvalid);
  REQUIRE(document.ok());
  const Result<ParsedSpec> result = parse_spec(*document, "$.specs[1]");
  INFO(result.status().to_string());
  REQUIRE(result.ok());
  CHECK(result->field_lines ==
        FieldOrigins{{"variant.prelude", {4}}, {"variant.logits_mask", {4}}});
  CHECK(parse_spec(*document, "$.specs[0]").status().path == "$.specs[0]");
  CHECK(parse_spec(*document, "$.specs[2]").status().cause == "line 1: the spec is missing");
  CHECK(parse_spec(*document, "$.spec").status().code == Code::kSpecInvalid);
}

TEST_CASE("variant rules") {
  const auto variant = [](const char* json) { return with("/variant", Json::parse(json)); };
  refuse(variant(R"({"params": [{"name": "cap", "type": "f32"}]})"), "$.variant.params[0]",
         "no functor uses");
  refuse(
      variant(
          R"({"params": [{"name": "cap", "type": "f32"}], "logits_transform": "return logits; /* cap */"})"),
      "$.variant.params[0]", "no functor uses");
  refuse(
      variant(R"({"params": [{"name": "q_pos", "type": "f32"}], "logits_mask": "return q_pos;"})"),
      "$.variant.params[0].name", "functor's argument");
  refuse(variant(R"({"params": [{"name": "a_", "type": "f32"}, {"name": "a_", "type": "i32"}],
                     "logits_mask": "return a_;"})"),
         "$.variant.params[1].name", "given twice");
  refuse(variant(R"({"prelude": "int f();"})"), "$.variant.prelude", "no functor that could use");
  refuse(variant(R"({"logits_transform": "logits * 2;"})"), "$.variant.logits_transform",
         "returns nothing");
  refuse(variant(R"({"sink": "s"})"), "$.variant.sink", "no param of type ptr<f32>");
  refuse(variant(R"({"sink": "s", "params": [{"name": "s", "type": "f32"}]})"), "$.variant.sink",
         "ptr<f32>");
}

TEST_CASE("params have room for 16 scalars and 8 pointers") {
  const auto status = [](const char* type, int count) {
    Json variant = {{"params", Json::array()}};
    std::string text = "return 1";
    for (int i = 0; i < count; ++i) {
      variant["params"].push_back({{"name", "p" + std::to_string(i)}, {"type", type}});
      text += " + p" + std::to_string(i);
    }
    variant["logits_mask"] = text + ";";
    return parse_spec(with("/variant", variant).dump()).status();
  };
  CHECK(status("f32", 16).ok());
  CHECK(status("ptr<u8>", 8).ok());
  CHECK(status("u32", 17).code == Code::kSpecUnsupported);
  CHECK(status("u32", 17).path == "$.variant.params[16]");
  CHECK(status("ptr<i32>", 9).path == "$.variant.params[8]");
}

}  // namespace
}  // namespace attnloom
