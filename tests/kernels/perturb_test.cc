// SPDX-License-Identifier: Apache-2.0
// Every field and functor of a variant reaches the output: a case is run twice, the second time
// with one of them changed, and the outputs must differ. (functors_test.cc shows that they are
// right.)
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "kernels/kernel_rig.h"

namespace attnloom::testing {
namespace {

// Every field with a value that matters; what stands against it is in kFields.
constexpr const char* kCase = R"({"case": 1,
  "spec": {"attnloom": 1, "kernel": "attention", "dtype": {"q": "f16", "kv": "f16", "o": "f16"},
    "head_dim": {"qk": 64, "vo": 64}, "group_size": 2, "layout": {"kv": "paged", "page_size": 5},
    "tile": {"q": 16, "kv": 64},
    "variant": {"name": "perturbed", "mask": {"causal": true, "window_left": "runtime"},
      "sink": "sinks",
      "params": [{"name": "sinks", "type": "ptr<f32>"}, {"name": "f", "type": "f32"},
        {"name": "i", "type": "i32"}, {"name": "u", "type": "u32"},
        {"name": "half", "type": "ptr<f16>"}, {"name": "brain", "type": "ptr<bf16>"},
        {"name": "ints", "type": "ptr<i32>"}, {"name": "bytes", "type": "ptr<u8>"}],
      "prelude": "constexpr float kTilt = 0.25f;",
      "logits_transform": "return logits * f + kTilt * float(kv_pos % i);",
      "logits_mask": "return unsigned(kv_pos) % u != 0u;",
      "output_transform": "return o * loom::to_float(half[q_head]) + lse;",
      "query_transform": "x.scale(loom::to_float(brain[a.head]));",
      "key_transform": "x.scale(float(ints[a.pos % 2]));",
      "value_transform": "x.scale(float(bytes[a.pos % 2]));"}},
  "workload": {"heads": {"q": 2, "kv": 1}, "qo_len": [3, 1], "kv_len": [70, 9], "scale": 0.125,
    "window_left": 40},
  "inputs": {"q": {"random": "normal", "seed": 1}, "k": {"random": "normal", "seed": 2},
    "v": {"random": "normal", "seed": 3},
    "params": {"sinks": {"dtype": "f32", "shape": [2], "data": [1.0, 2.0]}, "f": 0.5, "i": 3, "u": 5,
      "half": {"dtype": "f16", "shape": [2], "data": [1.0, 2.0]},
      "brain": {"dtype": "bf16", "shape": [2], "data": [1.0, 2.0]},
      "ints": {"dtype": "i32", "shape": [2], "data": [1, 2]},
      "bytes": {"dtype": "u8", "shape": [2], "data": [1, 2]}}}})";

struct Field {
  const char* pointer;
  const char* value;  // JSON
};
constexpr Field kFields[] = {
    {"/workload/scale", "0.25"},
    {"/workload/window_left", "20"},
    {"/spec/variant/mask/causal", "false"},
    {"/spec/variant/prelude", R"("constexpr float kTilt = 0.5f;")"},
    {"/spec/variant/logits_transform", R"("return logits * f - kTilt * float(kv_pos % i);")"},
    {"/spec/variant/logits_mask", R"("return unsigned(kv_pos) % u != 1u;")"},
    {"/spec/variant/output_transform", R"("return o * loom::to_float(half[q_head]) - lse;")"},
    {"/spec/variant/query_transform", R"("x.scale(-loom::to_float(brain[a.head]));")"},
    {"/spec/variant/key_transform", R"("x.scale(-float(ints[a.pos % 2]));")"},
    {"/spec/variant/value_transform", R"("x.scale(-float(bytes[a.pos % 2]));")"},
    {"/inputs/params/sinks/data", "[1.0, 3.0]"},
    {"/inputs/params/f", "0.75"},
    {"/inputs/params/i", "4"},
    {"/inputs/params/u", "6"},
    {"/inputs/params/half/data", "[1.0, 3.0]"},
    {"/inputs/params/brain/data", "[1.0, 3.0]"},
    {"/inputs/params/ints/data", "[1, 3]"},
    {"/inputs/params/bytes/data", "[1, 3]"},
};

// The case with a query tile of each family.
Json base_case() {
  Json base = Json::parse(kCase);
  base["spec"]["tile"]["q"] = GENERATE(1, 16);
  return base;
}

reference::Output output_of(Engine& engine, const Json& json) {
  const Result<CaseRun> run = run_case(engine, parse_or_fail(json.dump()));
  INFO(run.status().to_string());
  REQUIRE(run.ok());
  CHECK(run->report.findings.empty());
  return run->output;
}

bool same(const reference::Output& a, const reference::Output& b) {
  return a.o == b.o && a.lse == b.lse;
}

}  // namespace

TEST_CASE("a field that changes changes the output", "[perturb]") {
  const std::unique_ptr<Engine> engine = make_test_engine();
  const Json base = base_case();
  const reference::Output output = output_of(*engine, base);
  CHECK(same(output, output_of(*engine, base)));
  for (const Field& field : kFields) {
    INFO(field.pointer);
    Json changed = base;
    changed.at(Json::json_pointer(field.pointer)) = Json::parse(field.value);
    CHECK_FALSE(same(output, output_of(*engine, changed)));
  }
}

TEST_CASE("a field that is left out changes the output", "[perturb]") {
  const std::unique_ptr<Engine> engine = make_test_engine();
  // One field and the params that only it uses.
  const std::vector<std::pair<std::string, std::vector<std::string>>> fields = {
      {"sink", {"sinks"}},
      {"logits_mask", {"u"}},
      {"output_transform", {"half"}},
      {"query_transform", {"brain"}},
      {"key_transform", {"ints"}},
      {"value_transform", {"bytes"}}};
  const Json base = base_case();
  const reference::Output output = output_of(*engine, base);
  for (const auto& [field, params] : fields) {
    INFO(field);
    Json changed = base;
    Json& variant = changed["spec"]["variant"];
    variant.erase(field);
    for (const std::string& name : params) {
      changed["inputs"]["params"].erase(name);
      Json& list = variant["params"];
      for (std::size_t i = list.size(); i-- > 0;) {
        if (list[i]["name"] == name) list.erase(i);
      }
    }
    CHECK_FALSE(same(output, output_of(*engine, changed)));
  }
}

TEST_CASE("without softmax and with a fixed window the output is another", "[perturb]") {
  const std::unique_ptr<Engine> engine = make_test_engine();
  Json base = base_case();
  base["spec"]["variant"] = {{"name", "plain"}, {"mask", {{"window_left", 40}}}};
  base["workload"].erase("window_left");
  base["inputs"].erase("params");
  const reference::Output output = output_of(*engine, base);
  Json changed = base;
  changed["spec"]["variant"]["softmax"] = false;
  CHECK_FALSE(same(output, output_of(*engine, changed)));
  changed = base;
  changed["spec"]["variant"]["mask"]["window_left"] = 20;
  CHECK_FALSE(same(output, output_of(*engine, changed)));
}

}  // namespace attnloom::testing
