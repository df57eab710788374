// SPDX-License-Identifier: Apache-2.0
#include "base/json.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <limits>
#include <string>

#include "base/utf8.h"

namespace attnloom {
namespace {

Status refusal(std::string_view text) {
  const auto parsed = parse_json(text, Code::kSpecInvalid);
  REQUIRE_FALSE(parsed.ok());
  CHECK(parsed.status().code == Code::kSpecInvalid);
  return parsed.status();
}

bool says(const Status& status, const std::string& words) {
  INFO(status.to_string());
  return status.cause.find(words) != std::string::npos;
}

TEST_CASE("Every key and element has a place") {
  const auto parsed = parse_json(
      "{\n"
      "  \"a\": {\"b\": [1, -2.5e3,\n"
      "    {\"c\\\"d\": null}, [ ]]},\n"
      "  \"\xC3\xA9\": \"x\", \"e\": true }\n",
      Code::kSpecInvalid);
  REQUIRE(parsed.ok());
  const auto at = [&](const std::string& path) {
    const TextPosition position = parsed->positions.at(path);
    return std::to_string(position.line) + ":" + std::to_string(position.column);
  };
  CHECK(at("$") == "1:1");
  CHECK(at("$.a") == "2:3");
  CHECK(at("$.a.b") == "2:9");
  CHECK(at("$.a.b[0]") == "2:15");
  CHECK(at("$.a.b[1]") == "2:18");
  CHECK(at("$.a.b[2]") == "3:5");
  CHECK(at("$.a.b[2].c\"d") == "3:6");
  CHECK(at("$.a.b[3]") == "3:21");
  CHECK(at("$.\xC3\xA9") == "4:3");
  CHECK(at("$.e") == "4:13");  // columns count characters: one for the letter of two bytes
  CHECK(parsed->line_of("$.a.b[2].missing.deeper[7]") == 3);
  CHECK(parsed->line_of("$.nothing") == 1);
  CHECK(parsed->line_of("") == 0);
  CHECK(parsed->value["a"]["b"][1] == -2500.0);
  CHECK(parsed->value["a"]["b"][2].contains("c\"d"));
}

TEST_CASE("Numbers keep their kind and value") {
  const auto parsed =
      parse_json("[18446744073709551615, -9223372036854775808, 0.1, 1.0, 1e-05, 5e-324, 0]",
                 Code::kSpecInvalid);
  REQUIRE(parsed.ok());
  const Json& list = parsed->value;
  CHECK(list[0].is_number_unsigned());
  CHECK(list[0].get<std::uint64_t>() == std::numeric_limits<std::uint64_t>::max());
  CHECK(list[1].is_number_integer());
  CHECK(list[1].get<std::int64_t>() == std::numeric_limits<std::int64_t>::min());
  CHECK(list[2].get<double>() == 0.1);
  CHECK(list[3].is_number_float());
  CHECK(list[4].get<double>() == 1e-05);
  CHECK(list[5].get<double>() == std::numeric_limits<double>::denorm_min());
  CHECK(list[6].is_number_unsigned());
  CHECK(says(refusal("[18446744073709551616]"),
             "line 1, column 2: the integer 18446744073709551616"));
  CHECK(refusal("[18446744073709551616]").remedy.find("decimal") == std::string::npos);
  CHECK(says(refusal("[1e999]"), "overflow"));
  CHECK_FALSE(says(refusal("[1e999]"), "json.exception"));
}

TEST_CASE("Duplicate keys are refused with both places") {
  const Status error = refusal("{\"D\": 64,\n \"E\": {\"x\": 1},\n \"\\u0044\": 128}");
  CHECK(error.path == "$.D");
  CHECK(says(error, "line 3, column 2: duplicate key \"D\", first given on line 1"));
  CHECK(refusal("[{\"a\": 1, \"a\": 1}]").path == "$[0].a");
  CHECK(parse_json("{\"a\": {\"a\": 1}, \"b\": {\"a\": 1}}", Code::kSpecInvalid).ok());
}

TEST_CASE("Strictness") {
  CHECK(says(refusal("{} {}"), "line 1, column 4"));
  CHECK(says(refusal("{}x"), "line 1, column 3"));
  CHECK(says(refusal(std::string("{}\0{}", 5)), "line 1, column 3: NUL"));
  CHECK(says(refusal("{\"a\": 1,\n // note\n \"b\": 2}"), "line 2, column 2"));
  CHECK(refusal("{\"a\": /* note */ 1}").remedy == "JSON has no comments: remove it");
  CHECK(says(refusal("[NaN]"), "line 1, column 2"));
  CHECK(says(refusal("[-Infinity]"), "line 1, column 3"));
  CHECK(says(refusal("[1,]"), "line 1, column 4"));
  CHECK(says(refusal("{\"a\" 1}"), "line 1, column 6"));
  CHECK(says(refusal("{'a': 1}"), "line 1, column 2"));
  CHECK(says(refusal("[01]"), "line 1"));
  CHECK(says(refusal("[.5]"), "line 1"));
  CHECK(says(refusal("[+1]"), "line 1"));
  CHECK(says(refusal("[0x10]"), "line 1"));
  CHECK(says(refusal(""), "line 1, column 1"));
  CHECK(says(refusal("{\"a\": [1, 2"), "line 1"));
  CHECK(says(refusal("\"a\nb\""), "control character"));
  CHECK(says(refusal("\"\\ud800\""), "surrogate"));
  CHECK(refusal("{\"a\": {\"b\": [1, 2 3]}}").path == "$.a.b[2]");
  CHECK(parse_json("\xEF\xBB\xBF{\"a\": 1}", Code::kSpecInvalid)->positions.at("$.a").line == 1);
}

TEST_CASE("The parser's quotation never leaks half a character") {
  const Status error = refusal("{\"a\": \xC3\xA9}");
  CHECK(find_invalid_utf8(error.cause) == std::string::npos);
  CHECK_FALSE(says(error, "last read"));
}

TEST_CASE("Depth is limited to 64") {
  const auto nested = [](int depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  CHECK(parse_json(nested(64), Code::kSpecInvalid).ok());
  CHECK(says(refusal(nested(65)), "line 1, column 65: nested deeper than 64"));
  CHECK(says(refusal(std::string(1'000'000, '[')), "nested deeper"));
  std::string objects;
  for (int i = 0; i < 65; ++i) objects += "{\"a\":";
  CHECK(says(refusal(objects), "nested deeper"));
}

TEST_CASE("Only well-formed UTF-8") {
  CHECK(find_invalid_utf8("\xF0\x9F\x98\x80 \xED\x9F\xBF \xF4\x8F\xBF\xBF") == std::string::npos);
  CHECK(find_invalid_utf8("ab\x80") == 2);
  CHECK(find_invalid_utf8("\xC0\xAF") == 0);          // overlong
  CHECK(find_invalid_utf8("\xE0\x9F\xBF") == 0);      // overlong
  CHECK(find_invalid_utf8("\xED\xA0\x80") == 0);      // surrogate
  CHECK(find_invalid_utf8("\xF4\x90\x80\x80") == 0);  // over 10FFFF
  CHECK(find_invalid_utf8("a\xE2\x82") == 1);         // cut
  CHECK(says(refusal("{\n\"a\": \"\xFF\"}"), "line 2, column 7: invalid UTF-8"));
}

TEST_CASE("Canonical text") {
  const auto canonical = [](std::string_view text) {
    const auto parsed = parse_json(text, Code::kSpecInvalid);
    REQUIRE(parsed.ok());
    return canonical_json(parsed->value);
  };
  CHECK(canonical(" { \"b\" : [ 1 , 2.50 ], \"a\": {} } ") == "{\"a\":{},\"b\":[1,2.5]}");
  CHECK(canonical("[1, 1.0, -0.0, 1E2, 100, 1e22, 1e-05, 0.1, 1234567.0, 0.125]") ==
        "[1,1.0,-0.0,100.0,100,1e+22,1e-05,0.1,1234567.0,0.125]");
  CHECK(canonical("5e-324") == "5e-324");
  CHECK(canonical("2.2250738585072014e-308") == "2.2250738585072014e-308");
  CHECK(canonical("9007199254740993.0") == "9007199254740992.0");
  CHECK(canonical("[true,false,null,\"\\u00e9\\u0001\\n\\/\\\"\"]") ==
        "[true,false,null,\"\xC3\xA9\\u0001\\n/\\\"\"]");
  CHECK(canonical("{\"x\":1,\"y\":2}") == canonical("{\"y\":2,\"x\":1}"));
  CHECK(canonical_json(Json(std::numeric_limits<double>::infinity())) == "null");
}

TEST_CASE("Floats survive the round trip bit by bit") {
  std::uint64_t state = 1;
  for (int i = 0; i < 10'000; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    double value;
    static_assert(sizeof value == sizeof state);
    std::memcpy(&value, &state, sizeof value);
    if (!(std::abs(value) <= std::numeric_limits<double>::max())) continue;
    const auto parsed = parse_json(canonical_json(Json(value)), Code::kSpecInvalid);
    REQUIRE(parsed.ok());
    REQUIRE(parsed->value.is_number_float());
    REQUIRE(parsed->value.get<double>() == value);
  }
}

TEST_CASE("The nearest name") {
  const std::vector<std::string> known = {"causal", "window_left", "custom", "q", "kv"};
  CHECK(nearest_name("causl", known) == "causal");
  CHECK(nearest_name("cauzal", known) == "causal");
  CHECK(nearest_name("window_left ", known) == "window_left");
  CHECK(nearest_name("windowleft", known) == "window_left");
  CHECK(nearest_name("banana", known).empty());
  CHECK(nearest_name("o", known).empty());
  CHECK(nearest_name(std::string(65536, 'x'), known).empty());
  CHECK(nearest_name("", known).empty());
}

}  // namespace
}  // namespace attnloom
