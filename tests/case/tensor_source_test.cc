// SPDX-License-Identifier: Apache-2.0
#include "tools/case/tensor_source.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "reference/generators.h"
#include "tests/base/temp_directory.h"
#include "tests/case/cases.h"
#include "tools/case/npy.h"

namespace attnloom {
namespace {

using Values = std::vector<double>;

Result<Values> expand(const std::string& json, const std::vector<std::int64_t>& extents,
                      const std::string& directory = "") {
  const auto document = parse_json(json, Code::kTensorInvalid);
  REQUIRE(document.ok());
  const JsonNode node(*document, document->value, "$", Code::kTensorInvalid);
  return expand_tensor(node, extents, directory);
}

TEST_CASE("Numbers and lists are broadcast from the left") {
  CHECK(expand("7", {2, 1, 2}).value() == Values{7, 7, 7, 7});
  CHECK(expand("[1, 2]", {2, 2, 1}).value() == Values{1, 1, 2, 2});
  CHECK(expand("[[1, 2], [3, 4]]", {2, 2, 2}).value() == Values{1, 1, 2, 2, 3, 3, 4, 4});
  CHECK(expand("[[[1, 2]], [[3, 4]]]", {2, 1, 2}).value() == Values{1, 2, 3, 4});
  CHECK(expand("[]", {0, 3}).value().empty());
  CHECK(expand("5", {0, 3}).value().empty());
}

TEST_CASE("Special values") {
  const Values values = expand("[\"inf\", \"-inf\", \"nan\"]", {3}).value();
  CHECK(values[0] == std::numeric_limits<double>::infinity());
  CHECK(values[1] == -std::numeric_limits<double>::infinity());
  CHECK(std::isnan(values[2]));
}

TEST_CASE("Lists of the wrong shape are refused where they are wrong") {
  CHECK(expand("[1, 2, 3]", {2}).status().path == "$");
  CHECK(expand("[[1], [1, 2]]", {2, 2}).status().path == "$[0]");
  CHECK(expand("[[1, 2], [3]]", {2, 2}).status().path == "$[1]");
  CHECK(expand("[1, [3, 4]]", {2, 2}).status().path == "$[1]");
  CHECK(expand("[[1], [2]]", {2}).status().path == "$[0]");
  CHECK(expand("[true]", {1}).status().path == "$[0]");
  CHECK(expand("1", {1 << 20, 1 << 20}).status().cause.find("wanted at most") != std::string::npos);
}

TEST_CASE("Generators count row-major") {
  const Values values = expand(R"({"random": "normal", "seed": 3, "scale": 0.5})", {2, 3}).value();
  for (std::size_t i = 0; i < 6; ++i) {
    CHECK(values[i] == 0.5 * reference::random_value(reference::Generator::kNormal, 3, i));
  }
  CHECK(expand(R"({"random": "uniform", "seed": 0})", {1}).value()[0] == 0xE220A839p-32);
  CHECK(expand(R"({"random": "cauchy", "seed": 0})", {1}).status().path == "$.random");
  CHECK(expand(R"({"random": "normal"})", {1}).status().path == "$.seed");
  CHECK(expand(R"({"random": "normal", "seed": 4294967296})", {1}).status().path == "$.seed");
  CHECK(expand(R"({"random": "normal", "seed": 1, "sale": 2})", {1}).status().path == "$.sale");
  CHECK(expand("{}", {1}).status().path == "$.random");
}

TEST_CASE("Files are broadcast as lists are, and looked for beside the case") {
  const TempDirectory root;
  const std::vector<std::int64_t> shape = {2};
  REQUIRE(write_npy_f32(root / "a.npy", shape, Values{1.5, -2}).ok());
  CHECK(expand(R"({"npy": "a.npy"})", {2, 2}, root.path()).value() == Values{1.5, 1.5, -2, -2});
  CHECK(expand(R"({"npy": "a.npy"})", {3}, root.path()).status().cause.find("wanted [3]") !=
        std::string::npos);
  CHECK(expand(R"({"npy": "a.npy"})", {}, root.path()).status().path == "$.npy");
  CHECK(expand(R"({"npy": "b.npy"})", {2}, root.path()).status().cause.find("cannot read") !=
        std::string::npos);
  CHECK(expand("{\"npy\": \"" + (root / "a.npy") + "\"}", {2}).status().path == "$.npy");
  CHECK(expand(R"({"npy": "a.npy", "seed": 1})", {2}, root.path()).status().path == "$.seed");
}

TEST_CASE("Values are rounded to the dtype; none becomes infinite") {
  Json value = ragged_case({1}, {2});
  value["inputs"]["v"] = {1.0 + 0x1p-12, 0.1};
  const CaseFile file = parsed(value);
  CHECK(file.v.values == Values{1.0, 0.0999755859375});
  CHECK(file.v.bits == std::vector<std::uint16_t>{0x3C00, 0x2E66});
  value["inputs"]["v"] = {1, 65520};
  const Status status = refused(value);
  CHECK(status.path == "$.inputs.v");
  CHECK(status.cause.find("wanted values that f16 can hold, given 65520") != std::string::npos);
  value["inputs"]["v"] = {1, "inf"};
  CHECK(parsed(value).v.bits[1] == 0x7C00);
}

}  // namespace
}  // namespace attnloom
