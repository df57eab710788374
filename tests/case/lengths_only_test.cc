// SPDX-License-Identifier: Apache-2.0
// Cases that are planned and not run: no tensor is made, however large it would be.
#include "cases.h"

namespace attnloom {
namespace {

constexpr CaseOptions kLengthsOnly{.page_seed = 1, .tensors = false};

bool has_tensors(const CaseFile& file) {
  for (const CaseTensor* tensor : {&file.q, &file.k, &file.v}) {
    if (!tensor->bits.empty() || !tensor->values.empty()) return true;
  }
  return !file.k_image.bytes.empty() || !file.v_image.bytes.empty() || !file.pointers.empty() ||
         !file.k_scale.empty() || file.expect.has_value();
}

TEST_CASE("A case that is only planned has lengths, tables and scalars, and no tensors") {
  const CaseFile whole = parsed(example_case());
  REQUIRE(has_tensors(whole));
  const CaseFile file = parsed(example_case(), "", kLengthsOnly);
  CHECK_FALSE(has_tensors(file));
  CHECK(file.qo_indptr == std::vector<std::int32_t>{0, 2});
  CHECK(file.kv_indptr == std::vector<std::int32_t>{0, 1});
  CHECK(file.page_indices == std::vector<std::int32_t>{3});
  CHECK(file.last_page_len == std::vector<std::int32_t>{5});
  CHECK(file.pool_pages == 8);
  CHECK(file.scale == 1.0F);
  REQUIRE(file.scalars.size() == 1);
  CHECK(file.scalars[0].value == 30);
}

TEST_CASE("Pages that a case leaves out are counted and not dealt") {
  const CaseFile file = parsed(paged_case({1, 1, 1}, {5, 0, 4}), "", kLengthsOnly);
  CHECK(file.kv_indptr == std::vector<std::int32_t>{0, 3, 3, 5});
  CHECK(file.last_page_len == std::vector<std::int32_t>{1, 0, 2});
  CHECK(file.page_indices.empty());
}

TEST_CASE("Tensors that no run could hold are planned") {
  // 64 requests of 33280 keys on 8 heads of 128: 2^31 elements and 33 million more.
  Json large = paged_case(std::vector<int>(64, 1), std::vector<int>(64, 33280));
  large["spec"]["head_dim"] = {{"qk", 128}, {"vo", 128}};
  large["workload"]["heads"] = {{"q", 8}, {"kv", 8}};
  CHECK(refused(large).path == "$.workload");
  CHECK(parsed(large, "", kLengthsOnly).kv_indptr.back() == 64 * 16640);
  Json pool = large;
  pool["workload"]["pages"] = {{"indptr", std::vector<int>(65, 0)},
                               {"indices", Json::array()},
                               {"last_page_len", std::vector<int>(64, 0)},
                               {"pool", 2147483647}};
  pool["workload"]["kv_len"] = std::vector<int>(64, 0);
  CHECK(refused(pool).path == "$.workload.pages.pool");
  CHECK(parsed(pool, "", kLengthsOnly).pool_pages == 2147483647);
  Json slots = large;
  slots["spec"]["layout"] = Json{{"kv", "padded"}};
  CHECK(refused(slots).path == "$.workload");
  CHECK(parsed(slots, "", kLengthsOnly).kv_capacity == 33280 + 8);
  Json ragged = large;
  ragged["spec"]["layout"] = Json{{"kv", "ragged"}};
  CHECK(refused(ragged).path == "$.inputs.k");
  CHECK(parsed(ragged, "", kLengthsOnly).kv_indptr.back() == 64 * 33280);
}

TEST_CASE("What only a run needs may be absent from a plan, but no scalar") {
  Json base = example_case();
  base["inputs"] = {{"q", {{"npy", "none.npy"}}}, {"params", {{"cap", 30.0}}}};
  base["expect"] = {{"o", {{"npy", "none.npy"}}}};
  CHECK_FALSE(has_tensors(parsed(base, "", kLengthsOnly)));
  base.erase("inputs");
  auto file = parse_case(canonical_json(base), "", kLengthsOnly);
  CHECK(file.status().path == "$.inputs");
  base["inputs"] = {{"q", 0}};
  file = parse_case(canonical_json(base), "", kLengthsOnly);
  CHECK(file.status().path == "$.inputs.params");
  base["inputs"] = {{"qq", 0}, {"params", {{"cap", 30.0}}}};
  file = parse_case(canonical_json(base), "", kLengthsOnly);
  CHECK(file.status().path == "$.inputs.qq");
  Json plain = paged_case({1}, {5});
  plain.erase("inputs");
  CHECK(parsed(plain, "", kLengthsOnly).batch() == 1);
}

TEST_CASE("Pointer params and scales of the cache are tensors") {
  Json base = ragged_case({1}, {3});
  base["spec"]["variant"]["params"] =
      Json::parse(R"([{"name": "slopes", "type": "ptr<f32>"}, {"name": "cap", "type": "f32"}])");
  base["spec"]["variant"]["logits_transform"] = "return logits + slopes[0] * cap;";
  base["spec"]["dtype"]["kv"] = "e4m3";
  base["spec"]["variant"]["kv_scale"] = "head";
  base["workload"]["k_scale"] = 0.5;
  base["workload"]["v_scale"] = 2;
  base["inputs"]["params"] =
      Json::parse(R"({"cap": 2, "slopes": {"dtype": "f32", "shape": [4], "data": [1, 2, 3, 4]}})");
  CHECK(has_tensors(parsed(base)));
  const CaseFile file = parsed(base, "", kLengthsOnly);
  CHECK_FALSE(has_tensors(file));
  REQUIRE(file.scalars.size() == 1);
  CHECK(file.scalars[0].name == "cap");
}

}  // namespace
}  // namespace attnloom
