// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include "tests/case/cases.h"

namespace attnloom {
namespace {

// A case whose variant has one param "p" of a type.
Json with_param(const std::string& type, const Json& value) {
  Json base = ragged_case({1}, {1});
  base["spec"]["variant"] = Json{{"name", "mine"},
                                 {"params", Json::array({Json{{"name", "p"}, {"type", type}}})},
                                 {"logits_transform", "return logits + float(p != 0);"}};
  base["inputs"]["params"] = Json{{"p", value}};
  return base;
}

Json pointer(const std::string& dtype, const Json& shape, const Json& data) {
  return Json{{"dtype", dtype}, {"shape", shape}, {"data", data}};
}

TEST_CASE("Scalars") {
  CHECK(parsed(with_param("f32", 0.25)).scalars.at(0).value == 0.25);
  CHECK(parsed(with_param("i32", -3)).scalars.at(0).value == -3);
  CHECK(parsed(with_param("u32", 4294967295u)).scalars.at(0).value == 4294967295.0);
  const auto refusal = [](const std::string& type, const Json& value) {
    const Status status = refused(with_param(type, value));
    CHECK(status.code == Code::kTensorInvalid);
    CHECK(status.path == "$.inputs.params.p");
    return status.cause;
  };
  CHECK(refusal("u32", -1).find("given -1") != std::string::npos);
  CHECK(refusal("i32", 2147483648u).find("integers of i32") != std::string::npos);
  CHECK(refusal("i32", 1.5).find("given 1.5") != std::string::npos);
  CHECK(refusal("f32", 1e39).find("f32") != std::string::npos);
  CHECK(refusal("f32", Json::array({1})).find("wanted a number") != std::string::npos);
}

TEST_CASE("Pointers hold bytes in the param's type") {
  const CaseFile f32 = parsed(with_param("ptr<f32>", pointer("f32", {2}, {0.1, -1})));
  REQUIRE(f32.pointers.size() == 1);
  CHECK(f32.pointers[0].name == "p");
  CHECK(f32.pointers[0].bytes.size() == 8);
  CHECK(f32.pointers[0].values == std::vector<double>{static_cast<double>(0.1f), -1});
  float second;
  std::memcpy(&second, f32.pointers[0].bytes.data() + 4, 4);
  CHECK(second == -1.0f);
  CHECK(parsed(with_param("ptr<bf16>", pointer("bf16", {2, 2}, 1))).pointers[0].bytes.size() == 8);
  const CaseFile u8 = parsed(with_param("ptr<u8>", pointer("u8", {3}, {0, 128, 255})));
  CHECK(u8.pointers[0].bytes ==
        std::vector<std::byte>{std::byte{0}, std::byte{128}, std::byte{255}});
  const CaseFile i32 = parsed(with_param("ptr<i32>", pointer("i32", {1}, {-2})));
  CHECK(i32.pointers[0].bytes[3] == std::byte{0xFF});
  const Json random = Json{{"dtype", "f32"}, {"shape", {5}}, {"random", "uniform"}, {"seed", 0}};
  CHECK(parsed(with_param("ptr<f32>", random)).pointers[0].values.size() == 5);
}

TEST_CASE("Pointers that do not fit are refused by name") {
  const auto path_of = [](const std::string& type, const Json& value) {
    return refused(with_param(type, value)).path;
  };
  const std::string p = "$.inputs.params.p";
  CHECK(path_of("ptr<f32>", 1) == p);
  CHECK(path_of("ptr<f32>", pointer("f16", {1}, 1)) == p + ".dtype");
  CHECK(path_of("ptr<f32>", pointer("f32", {2}, {1})) == p + ".data");
  CHECK(path_of("ptr<f32>", pointer("f32", {-1}, 1)) == p + ".shape[0]");
  CHECK(path_of("ptr<f32>", pointer("f32", {1, 1, 1, 1, 1, 1}, 1)) == p + ".shape");
  CHECK(parsed(with_param("ptr<f32>", pointer("f32", {1, 1, 1, 1, 1}, 1))).pointers.size() == 1);
  CHECK(path_of("ptr<u8>", pointer("u8", {1}, 256)) == p);
  CHECK(path_of("ptr<i32>", pointer("i32", {1}, "nan")) == p);
  CHECK(path_of("ptr<f32>", Json{{"dtype", "f32"}, {"shape", {1}}}) == p + ".data");
  CHECK(path_of("ptr<i32>",
                Json{{"dtype", "i32"}, {"shape", {1}}, {"random", "normal"}, {"seed", 1}}) == p);
  Json both = pointer("f32", {1}, 1);
  both["random"] = "normal";
  CHECK(path_of("ptr<f32>", both) == p);
  Json seeded = pointer("f32", {1}, 1);
  seeded["seed"] = 1;
  CHECK(path_of("ptr<f32>", seeded) == p + ".seed");
}

}  // namespace
}  // namespace attnloom
