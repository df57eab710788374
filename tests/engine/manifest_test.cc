// SPDX-License-Identifier: Apache-2.0
#include "engine/manifest.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>
#include <map>

#include "engine/manifest_entry.h"
#include "engine/stubs.h"

namespace attnloom {
namespace {

constexpr const char* kDefaults = R"("defaults": {"attnloom": 1, "kernel": "attention",
 "dtype": {"q": "bf16", "kv": "bf16", "o": "bf16"}, "head_dim": {"qk": 64, "vo": 64},
 "group_size": 2, "layout": {"kv": "paged", "page_size": 16}})";

std::string manifest_text(const std::string& specs, const std::string& more = "") {
  return std::string("{\"manifest\": 1, \"targets\": [\"sm_90a\"],\n") + kDefaults + ",\n" + more +
         "\"specs\": [\n" + specs + "]}";
}

ManifestOptions with_files(const std::map<std::string, std::string>& files) {
  ManifestOptions options;
  options.read_file = [files](const std::string& path) -> Result<std::string> {
    const auto found = files.find(path);
    if (found != files.end()) return found->second;
    return make_error(Code::kArgumentInvalid, path, "cannot be read: absent");
  };
  return options;
}

Manifest read(const std::string& text, const ManifestOptions& options = with_files({})) {
  Result<Manifest> manifest = parse_manifest(text, options);
  INFO(manifest.status().to_string());
  REQUIRE(manifest.ok());
  return std::move(manifest).value();
}

Status refusal(const std::string& text, const ManifestOptions& options = with_files({})) {
  const Result<Manifest> manifest = parse_manifest(text, options);
  REQUIRE_FALSE(manifest.ok());
  return manifest.status();
}

TEST_CASE("a grid is the product of its fields, the last running fastest") {
  const Manifest manifest = read(manifest_text(
      R"({"spec": {}, "grid": {"layout.page_size": [16, 64], "dtype.kv": ["bf16", "e4m3"],
      "head_dim": [{"qk": 128, "vo": 128}], "tile": ["auto", {"q": 16, "kv": 32}]}})"));
  REQUIRE(manifest.items.size() == 8);
  CHECK_FALSE(manifest.pins);
  const Spec& first = manifest.items[0].parsed.spec;
  CHECK(first.dtype.kv == DType::kBf16);
  CHECK(first.head_dim == HeadDim{128, 128});
  CHECK(first.layout.page_size == 16);
  CHECK(first.tile == TileChoice(AutoTile{}));
  CHECK(manifest.items[1].parsed.spec.tile == TileChoice(FixedTile{16, 32}));
  CHECK(manifest.items[2].parsed.spec.layout.page_size == 64);
  CHECK(manifest.items[4].parsed.spec.dtype.kv == DType::kE4m3);
  CHECK(manifest.items[7].label ==
        "specs[0] dtype.kv=\"e4m3\" head_dim={\"qk\":128,\"vo\":128} layout.page_size=64 "
        "tile={\"kv\":32,\"q\":16}");
  CHECK(manifest.items[7].targets == std::vector<Target>{{90, 'a'}});
}

TEST_CASE("an entry is a spec, a file or a shipped variant, and defaults fill what it lacks") {
  const std::string file = R"({"attnloom": 1, "kernel": "attention", "target": "sm_80",
    "dtype": {"q": "f16", "kv": "f16", "o": "f16"}, "head_dim": {"qk": 96, "vo": 96},
    "group_size": 1, "layout": {"kv": "ragged"}})";
  const Manifest manifest =
      read(manifest_text(R"({"file": "specs/own.json", "targets": ["sm_86"]},
      {"file": "case.json"}, {"variant": "soft_cap", "grid": {"group_size": [8]}},
      {"variant": "append_fp8"}, {"spec": {"kernel": "merge"}})",
                         "\"pins\": true,\n"),
           with_files(
               {{"specs/own.json", file}, {"case.json", "{\"case\": 1, \"spec\": " + file + "}"}}));
  REQUIRE(manifest.items.size() == 5);
  CHECK(manifest.pins);
  CHECK(manifest.items[0].parsed.spec == manifest.items[1].parsed.spec);
  CHECK(manifest.items[0].parsed.spec.head_dim == HeadDim{96, 96});
  CHECK(manifest.items[0].parsed.spec.layout.kv == KvLayout::kRagged);
  CHECK(manifest.items[0].targets == std::vector<Target>{{86, '\0'}});
  CHECK(manifest.items[1].targets == std::vector<Target>{{90, 'a'}});
  const Spec& soft_cap = manifest.items[2].parsed.spec;
  CHECK(soft_cap.variant.name == "soft_cap");
  CHECK(soft_cap.variant.logits_transform == "return cap * loom::tanh(logits / cap);");
  CHECK(soft_cap.head_dim == HeadDim{64, 64});
  CHECK(soft_cap.group_size == 8);
  // The defaults are attention's: append has no group_size and no dtype.o.
  CHECK(manifest.items[3].parsed.spec.kernel == KernelKind::kAppend);
  CHECK(manifest.items[3].parsed.spec.dtype.kv == DType::kBf16);
  CHECK(manifest.items[4].parsed.spec.kernel == KernelKind::kMerge);
  CHECK(manifest.items[4].parsed.spec.head_dim.vo == 64);
}

TEST_CASE("targets: the caller's, the entry's, the manifest's, the spec's own") {
  const std::string own = R"({"spec": {"target": "sm_80"}}, {"spec": {}, "targets": ["sm_86"]})";
  const std::string text = std::string("{\"manifest\": 1, ") + kDefaults + ", \"specs\": [" + own;
  const Manifest alone = read(text + "]}");
  CHECK(alone.items[0].targets == std::vector<Target>{{80, '\0'}});
  CHECK(alone.items[1].targets == std::vector<Target>{{86, '\0'}});
  ManifestOptions options = with_files({});
  options.targets = {{100, 'f'}};
  for (const PrewarmItem& item : read(text + "]}", options).items)
    CHECK(item.targets == options.targets);
  const Status none = refusal(text + ",\n{\"spec\": {}}]}");
  CHECK(none.path == "$.specs[2]");
}

TEST_CASE("a refusal names the manifest's path and line, and the point of the grid") {
  Status error = refusal(manifest_text("\n{\"spec\": {},\n \"gird\": {}}"));
  CHECK(error.path == "$.specs[0].gird");
  CHECK(error.cause.rfind("line 8: ", 0) == 0);
  CHECK(error.remedy == "did you mean \"grid\"?");
  error = refusal(manifest_text("\n{\"spec\": {\n \"variant\": {\"causl\": 1}}}"));
  CHECK(error.path == "$.specs[0].spec.variant.causl");
  CHECK(error.cause.rfind("line 8: ", 0) == 0);
  error =
      refusal(manifest_text("{\"spec\": {}, \"grid\": {\"layout\": [{\"kv\": \"ragged\"},\n"
                            "{\"kv\": \"pagd\"}]}}"));
  CHECK(error.path == "$.specs[0].grid.layout[1].kv");
  CHECK(error.cause.rfind("line 7: wanted one of ragged", 0) == 0);
  // A default is wrong where it stands, for an entry of any kind.
  const std::string wrong = R"({"manifest": 1, "targets": ["sm_90a"], "defaults": {"attnloom": 1,
 "kernel": "attention",
 "layout": {"kv": "paged",
  "page_size": "many"}}, "specs": [)";
  const std::string own = R"({"attnloom": 1, "kernel": "attention",
    "dtype": {"q": "f16", "kv": "f16", "o": "f16"}, "head_dim": {"qk": 96, "vo": 96},
    "group_size": 1})";
  for (const char* entry :
       {R"({"variant": "soft_cap"}]})", R"({"file": "own.json"}]})",
        R"({"spec": {"dtype": {"q": "f16", "kv": "f16", "o": "f16"}, "group_size": 1,
           "head_dim": {"qk": 64, "vo": 64}}, "grid": {"group_size": [1, 2]}}]})"}) {
    error = refusal(wrong + entry, with_files({{"own.json", own}}));
    CHECK(error.path == "$.defaults.layout.page_size");
    CHECK(error.cause.rfind("line 4: ", 0) == 0);
  }
  // The line is the grid's also where the spec has the field itself.
  error =
      refusal(manifest_text("{\"spec\": {\"layout\": {\"kv\": \"ragged\"}},\n\n\"grid\": "
                            "{\"layout\": [{\"kv\": \"pagd\"}]}}"));
  CHECK(error.cause.rfind("line 8: wanted one of ragged", 0) == 0);
  error = refusal(manifest_text("{\"spec\": {}, \"grid\": {\"page\": [1]}}"));
  CHECK(error.path == "$.specs[0].grid.page[0]");
  // What another value of the point makes wrong names the point.
  error = refusal(manifest_text("{\"spec\": {}, \"grid\": {\"kernel\": [\"merge\"]}}"));
  CHECK(error.path == "$.defaults.group_size");
  CHECK(error.cause.find("(with kernel=\"merge\")") != std::string::npos);
  error = refusal(manifest_text("{\"file\": \"bad.json\"}"),
                  with_files({{"bad.json", "{\"attnloom\": 1,\n \"kernl\": 1}"}}));
  CHECK(error.path == "$.kernl");
  CHECK(error.cause.rfind("bad.json, line 2: unknown key", 0) == 0);
  CHECK(refusal(manifest_text("{\"file\": \"no.json\"}")).path == "$.specs[0].file");
  error = refusal(manifest_text("{\"variant\": \"soft_cpa\"}"));
  CHECK(error.remedy == "did you mean \"soft_cap\"?");
}

TEST_CASE("what is not a manifest is refused") {
  for (const char* specs :
       {"", "{}", "{\"spec\": {}, \"file\": \"a\"}", "{\"spec\": 1}", "1",
        "{\"spec\": {}, \"grid\": []}", "{\"spec\": {}, \"grid\": {\"task\": []}}",
        "{\"spec\": {}, \"grid\": {\"task\": \"decode\"}}",
        "{\"spec\": {}, \"grid\": {\"target\": [\"sm_80\"]}}",
        "{\"spec\": {}, \"grid\": {\"task.x\": [1]}}", "{\"spec\": {}, \"targets\": []}",
        "{\"spec\": {}, \"targets\": [\"compute_90\"]}"}) {
    CAPTURE(specs);
    CHECK(refusal(manifest_text(specs)).code == Code::kSpecInvalid);
  }
  CHECK(refusal("{\"manifest\": 2, \"specs\": []}").path == "$.manifest");
  CHECK(refusal("{\"specs\": []}").path == "$.manifest");
  CHECK(refusal(manifest_text("{\"spec\": {}}", "\"pins\": 1,\n")).path == "$.pins");
  // 200^3 specs: refused before they are made.
  std::string sizes = "[1";
  for (int i = 2; i <= 200; ++i) sizes += "," + std::to_string(i);
  sizes += "]";
  const Status many = refusal(manifest_text("{\"spec\": {}, \"grid\": {\"group_size\": " + sizes +
                                            ", \"layout.page_size\": " + sizes +
                                            ", \"head_dim.qk\": " + sizes + "}}"));
  CHECK(many.cause.find("more than 20000 specs") != std::string::npos);
}

std::vector<std::string> properties(const Json& object) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.at("properties").items()) keys.push_back(key);
  return keys;
}

// The parser lists its keys when it is given one that is near none.
std::vector<std::string> known_keys(const std::string& text) {
  std::string rest = refusal(text).remedy;
  const std::string prefix = "known keys: ";
  REQUIRE(rest.rfind(prefix, 0) == 0);
  rest.erase(0, prefix.size());
  std::vector<std::string> keys;
  for (std::size_t comma = 0; comma != std::string::npos; rest.erase(0, comma + 2)) {
    comma = rest.find(", ");
    keys.push_back(rest.substr(0, comma));
    if (comma == std::string::npos) break;
  }
  std::sort(keys.begin(), keys.end());
  return keys;
}

TEST_CASE("the schema has the parser's keys and version") {
  std::ifstream file(std::string(ATTNLOOM_SOURCE_DIR) + "/docs/manifest.schema.json");
  REQUIRE(file.good());
  const Json schema = Json::parse(std::string(std::istreambuf_iterator<char>(file), {}));
  CHECK(properties(schema) == known_keys(manifest_text("", "\"zzzzzzzzzzzz\": 1,\n")));
  CHECK(schema["properties"]["manifest"]["const"] == kManifestVersion);
  const Json& entry = schema["properties"]["specs"]["items"];
  CHECK(properties(entry) == known_keys(manifest_text("{\"zzzzzzzzzzzz\": 1}")));
}

TEST_CASE("reformatted JSON and a renamed variant are the same kernels") {
  const std::string variant =
      R"("variant": {"logits_transform": "return 2.0f * logits;", "name": )";
  const Manifest manifest =
      read(manifest_text("{\"spec\": {" + variant + "\"one\"}}},\n{\"spec\":\n\n{" + variant +
                         "\n\t\"two\"},\n\"task\":\"mixed\"}}"));
  StubEngine stub({.root = "", .has_device = false});
  const PrewarmReport report = prewarm(*stub.engine, manifest.items, {});
  CHECK(report.rows.size() > 1);
  CHECK(report.duplicates == report.rows.size());
  CHECK(stub.compiler->compiles == static_cast<int>(report.rows.size()));
}

}  // namespace
}  // namespace attnloom
