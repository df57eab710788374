// SPDX-License-Identifier: Apache-2.0
// Every refusal names the path in the case file, what was wanted and what was given.
#include <catch2/catch.hpp>

#include "tests/case/cases.h"

namespace attnloom {
namespace {

// The refusal of `base` with the value at `pointer` replaced ("/workload/scale"); null removes it.
Status refused_with(Json base, const std::string& pointer, const Json& value) {
  const Json::json_pointer place(pointer);
  if (value.is_null()) {
    base[place.parent_pointer()].erase(place.back());
  } else {
    base[place] = value;
  }
  return refused(base);
}

void check_refusal(const Json& base, const std::string& pointer, const Json& value, Code code,
                   const std::string& path, const std::string& words) {
  const Status status = refused_with(base, pointer, value);
  INFO(status.to_string());
  CHECK(status.code == code);
  CHECK(status.path == path);
  CHECK(status.cause.find(words) != std::string::npos);
}

TEST_CASE("Top level") {
  const Code code = Code::kWorkloadInvalid;
  const Json base = example_case();
  check_refusal(base, "/case", 2, code, "$.case", "wanted an integer from 1 to 1, given 2");
  check_refusal(base, "/case", nullptr, code, "$.case", "missing");
  check_refusal(base, "/inptus", 1, code, "$.inptus", "unknown key");
  check_refusal(base, "/inputs", nullptr, code, "$.inputs", "missing");
  check_refusal(base, "/workload", 3, code, "$.workload", "wanted an object, given 3");
  CHECK(refused_with(base, "/inptus", 1).remedy == "did you mean \"inputs\"?");
  CHECK(parse_case("{\"case\": 1,}", "").status().code == Code::kWorkloadInvalid);
  CHECK(parse_case("{\"case\": 1, \"case\": 1}", "").status().path == "$.case");
  CHECK(parse_case("[]", "").status().path == "$");
}

TEST_CASE("Errors of the spec pass through with their own code and the path in this file") {
  const Json base = example_case();
  check_refusal(base, "/spec/variant/mask/causl", true, Code::kSpecInvalid,
                "$.spec.variant.mask.causl", "unknown key");
  check_refusal(base, "/spec/dtype/q", "f64", Code::kSpecInvalid, "$.spec.dtype.q", "f64");
}

TEST_CASE("Specs that a case cannot feed") {
  const Json merge = {
      {"attnloom", 1}, {"kernel", "merge"}, {"dtype", {{"o", "bf16"}}}, {"head_dim", {{"vo", 64}}}};
  Json base = paged_case({1}, {1});
  base["spec"] = merge;
  const auto file = parse_case(canonical_json(base), "");
  REQUIRE_FALSE(file.ok());
  CHECK(file.status().code == Code::kSpecUnsupported);
  CHECK(file.status().path == "$.spec.kernel");
}

TEST_CASE("Workload") {
  const Code code = Code::kWorkloadInvalid;
  const Json base = example_case();
  check_refusal(base, "/workload/heads/q", 3, code, "$.workload.heads", "q = kv * group_size");
  check_refusal(base, "/workload/heads/q", 0, code, "$.workload.heads.q", "given 0");
  check_refusal(base, "/workload/heads/kv", nullptr, code, "$.workload.heads.kv", "missing");
  check_refusal(base, "/workload/qo_len", nullptr, code, "$.workload.qo_len", "missing");
  check_refusal(base, "/workload/qo_len", 2, code, "$.workload.qo_len", "wanted a list, given 2");
  check_refusal(base, "/workload/qo_len/0", -1, code, "$.workload.qo_len[0]", "given -1");
  check_refusal(base, "/workload/qo_len/0", 2.0, code, "$.workload.qo_len[0]", "given 2.0");
  check_refusal(base, "/workload/qo_len/0", 2147483648u, code, "$.workload.qo_len[0]",
                "given 2147483648");
  check_refusal(base, "/workload/kv_len", Json{1, 2}, code, "$.workload.kv_len",
                "wanted 1 lengths");
  check_refusal(base, "/workload/qo_len", Json{2147483647, 1}, code, "$.workload.kv_len",
                "wanted 2");
  check_refusal(base, "/workload/scale", "nan", code, "$.workload.scale",
                "wanted a number, given \"nan\"");
  check_refusal(base, "/workload/scale", 1e39, code, "$.workload.scale", "wanted an f32 > 0");
  for (const double scale : {0.0, -1.0, 1e-60})
    check_refusal(base, "/workload/scale", scale, code, "$.workload.scale", "wanted an f32 > 0");
  check_refusal(base, "/workload/window_left", 3, code, "$.workload.window_left",
                "not \"runtime\"");
  check_refusal(base, "/workload/kv_order", "NDH", code, "$.workload.kv_order", "given \"NDH\"");
  check_refusal(base, "/workload/mask", 1, code, "$.workload.mask", "mask.custom is not true");
  check_refusal(base, "/workload/k_scale", 1.0, code, "$.workload.k_scale",
                "variant.kv_scale is \"none\"");
  Json runtime = base;
  runtime["spec"]["variant"]["mask"]["window_left"] = "runtime";
  check_refusal(runtime, "/workload/window_left", nullptr, code, "$.workload.window_left",
                "missing");
  check_refusal(runtime, "/workload/window_left", -2, code, "$.workload.window_left", "given -2");
}

TEST_CASE("Scales of an 8-bit cache") {
  const Code code = Code::kWorkloadInvalid;
  Json base = example_case();
  base["spec"]["dtype"]["kv"] = "e4m3";
  base["spec"]["variant"]["kv_scale"] = "tensor";
  base["workload"]["k_scale"] = 0.5;
  base["workload"]["v_scale"] = 2;
  REQUIRE(parse_case(canonical_json(base), "").ok());
  check_refusal(base, "/workload/k_scale", nullptr, code, "$.workload.k_scale", "missing");
  check_refusal(base, "/workload/v_scale", Json{2.0}, code, "$.workload.v_scale",
                "wanted a number");
  for (const double wrong : {0.0, -1.0, 1e39})
    check_refusal(base, "/workload/v_scale", wrong, code, "$.workload.v_scale", "wanted f32 > 0");
  base["spec"]["variant"]["kv_scale"] = "head";
  REQUIRE(parse_case(canonical_json(base), "").ok());
  check_refusal(base, "/workload/k_scale", Json({1.0, 2.0}), code, "$.workload.k_scale",
                "wanted 1 entries, given 2");
  check_refusal(base, "/workload/k_scale", Json{{"random", "normal"}, {"seed", 1}}, code,
                "$.workload.k_scale", "wanted a number or a list");
  check_refusal(base, "/inputs/k", "inf", Code::kTensorInvalid, "$.inputs.k",
                "e4m3 has no infinity");
}

TEST_CASE("Pages") {
  const Code code = Code::kWorkloadInvalid;
  const Json base = example_case();
  const std::string pages = "/workload/pages";
  check_refusal(base, pages + "/pool", nullptr, code, "$.workload.pages.pool", "missing");
  check_refusal(base, pages + "/indptr", Json{0}, code, "$.workload.pages.indptr",
                "wanted 2 entries");
  check_refusal(base, pages + "/indptr", Json{1, 1}, code, "$.workload.pages.indptr",
                "wanted 0 first");
  check_refusal(base, pages + "/indices", Json{8}, code, "$.workload.pages.indices[0]",
                "from 0 to 7, given 8");
  check_refusal(base, pages + "/indices", Json{-1}, code, "$.workload.pages.indices[0]",
                "given -1");
  check_refusal(base, pages + "/indices", Json::array(), code, "$.workload.pages.indices",
                "wanted 1");
  check_refusal(base, pages + "/last_page_len", Json{17}, code, "$.workload.pages",
                "1 to 16, given 17");
  check_refusal(base, pages + "/last_page_len", Json{0}, code, "$.workload.pages", "given 0");
  check_refusal(base, pages + "/last_page_len", Json{4}, code, "$.workload.pages",
                "wanted kv_len 5 tokens, given 1 pages with 4");
  check_refusal(base, pages + "/indptr", Json{0, 0}, code, "$.workload.pages", "0 without a page");
  check_refusal(base, pages + "/pol", 1, code, "$.workload.pages.pol", "unknown key");
  check_refusal(ragged_case({1}, {1}), pages, Json::object(), code, "$.workload.pages",
                "not \"paged\"");
  Json huge = base;
  huge["workload"]["pages"]["pool"] = 2147483647;
  const auto file = parse_case(canonical_json(huge), "");
  CHECK(file.status().path == "$.workload.pages.pool");
  check_refusal(base, "/workload",
                Json{{"heads", {{"q", 4}, {"kv", 1}}}, {"qo_len", {1}}, {"kv_len", {2147483647}}},
                code, "$.workload", "more than 2147483648 elements");
}

TEST_CASE("Custom masks") {
  Json base = ragged_case({1}, {3});
  base["spec"]["variant"] = Json::parse(R"({"mask": {"custom": true}})");
  base["workload"]["mask"] = Json::parse(R"({"custom": [[[1, 0, 1]]]})");
  REQUIRE(parse_case(canonical_json(base), "").ok());
  const Code code = Code::kWorkloadInvalid;
  const std::string mask = "/workload/mask";
  check_refusal(base, mask, nullptr, code, "$.workload.mask", "missing");
  check_refusal(base, mask + "/custom/0/0/1", 2, code, "$.workload.mask.custom[0][0][1]",
                "given 2");
  check_refusal(base, mask + "/custom/0/0", Json{1, 0}, code, "$.workload.mask.custom[0][0]",
                "wanted kv_len 3 entries, given 2");
  check_refusal(base, mask + "/custom/0", Json::array(), code, "$.workload.mask.custom[0]",
                "wanted qo_len 1");
  check_refusal(base, mask + "/custom", Json::array(), code, "$.workload.mask.custom",
                "wanted 1 masks");
}

TEST_CASE("Inputs and expectations") {
  const Code code = Code::kTensorInvalid;
  const Json base = example_case();
  check_refusal(base, "/inputs/q", nullptr, code, "$.inputs.q", "missing");
  check_refusal(base, "/inputs/q", true, code, "$.inputs.q", "wanted a number");
  check_refusal(base, "/inputs/q", "NaN", code, "$.inputs.q", "given \"NaN\"");
  check_refusal(base, "/inputs/z", 1, code, "$.inputs.z", "unknown key");
  check_refusal(base, "/inputs/v", Json{1, 2}, code, "$.inputs.v", "wanted 5 entries, given 2");
  check_refusal(base, "/inputs/params/cap", nullptr, code, "$.inputs.params.cap", "missing");
  check_refusal(base, "/inputs/params", nullptr, code, "$.inputs.params", "missing");
  check_refusal(base, "/inputs/params/cpa", 1, code, "$.inputs.params.cpa", "unknown key");
  check_refusal(base, "/expect/o", Json{1}, code, "$.expect.o", "wanted 2 entries, given 1");
  check_refusal(base, "/expect/atol", -1, code, "$.expect.atol", "at least 0");
  check_refusal(base, "/expect/rotl", 1, code, "$.expect.rotl", "unknown key");
  check_refusal(base, "/expect", Json::object(), code, "$.expect", "neither");
}

}  // namespace
}  // namespace attnloom
