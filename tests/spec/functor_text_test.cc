// SPDX-License-Identifier: Apache-2.0
#include "spec/functor_text.h"

#include <catch2/catch.hpp>
#include <string>

namespace attnloom {
namespace {

const std::string kPath = "$.variant.prelude";

void accept(const std::string& text) {
  INFO(text);
  const Result<FunctorTokens> result = scan_functor(text, kPath);
  INFO(result.status().to_string());
  CHECK(result.ok());
}

// `place` is "line L, column C" of the offence.
void refuse(const std::string& text, const std::string& cause, const std::string& place) {
  INFO(text);
  const Status status = scan_functor(text, kPath).status();
  INFO(status.to_string());
  CHECK(status.code == Code::kSpecInvalid);
  CHECK(status.path == kPath);
  CHECK(status.cause.find(cause) != std::string::npos);
  CHECK(status.cause.find(place + " of the text") != std::string::npos);
}

TEST_CASE("ordinary device code passes") {
  accept("return cap * loom::tanh(logits / cap);");
  accept("float y = 0;\n#pragma unroll\nfor (int i = 0; i < 4; ++i) { y += a[i]; }\nreturn y;");
  accept("  #  pragma unroll 4 // comment\nwhile (x) {}");
  accept("#pragma unroll (N + 1)\r\nfor (;;) { break; }\r\n");
  accept("asm volatile(\"ex2.approx.ftz.f32 %0, %1;\" : \"=f\"(y) : \"f\"(x)); return y;");
  accept("return x % 3 < 1 ? 1'000'000 : 0x1p-3f;");
  accept("return a[b[0]] <:: x;");  // two tokens to us either way
}

TEST_CASE("comments and literals hold what code may not") {
  accept("/* #include <x> } %: _Pragma */ return 1; // } #define");
  accept("const char* s = \"#include } %: \\\" {\"; return 1;");
  accept("const char* s = R\"(#define } \" )\"; return 1;");
  accept("const char* s = u8R\"x(#) \" )\" } )x\"; return 1;");
  accept("char c = '\"'; char d = '\\''; char e = '{'; char f = '\\\\'; return 1;");
  accept("return 1; // \xc3\xa9\xe2\x82\xac");
  accept("const char* s = \"\xc3\xa9\"; return 1;");
}

TEST_CASE("preprocessor directives are refused in either spelling") {
  refuse("#include \"/etc/passwd\"\nreturn 1;", "preprocessor", "line 1, column 1");
  refuse("return 1;\n  # define X 1", "preprocessor", "line 2, column 3");
  refuse("%:include <x>", "%:", "line 1, column 1");
  refuse("return 1; %: define X", "%:", "line 1, column 11");
  refuse("/* */ #include <x>", "preprocessor", "line 1, column 7");
  refuse("/*\n*/#pragma unroll\nreturn 1;", "preprocessor", "line 2, column 3");
  refuse("#pragma once", "preprocessor", "line 1, column 1");
  refuse("#pragma unroll_and_jam", "preprocessor", "line 1, column 1");
  refuse("#pragma nv_diag_suppress 1", "preprocessor", "line 1, column 1");
  refuse("#/**/pragma unroll", "preprocessor", "line 1, column 1");
  refuse("x; #pragma unroll\n", "preprocessor", "line 1, column 4");
  refuse("#", "preprocessor", "line 1, column 1");
  refuse("#if 0\n", "preprocessor", "line 1, column 1");
  refuse("_Pragma(\"once\") return 1;", "_Pragma", "line 1, column 1");
  refuse("return __has_include(<x>);", "__has_include", "line 1, column 8");
  refuse("return __has_include_next(<x>);", "__has_include_next", "line 1, column 8");
  refuse("return __has_embed(<x>);", "__has_embed", "line 1, column 8");
  refuse("const char* s = __DATE__; return 1;", "__DATE__", "line 1, column 17");
}

// The compiler reads the directive's line on its own: its bracket would not balance one on a later
// line.
TEST_CASE("#pragma unroll takes a count and no brackets of the code around it") {
  refuse("#pragma unroll {\n}", "behind #pragma unroll", "line 1, column 16");
  refuse("#pragma unroll (\n)", "not closed on its line", "line 1, column 17");
  refuse("#pragma unroll )\nreturn (1;", "behind #pragma unroll", "line 1, column 16");
  refuse("#pragma unroll /*\n*/ 4\nreturn 1;", "behind #pragma unroll", "line 1, column 16");
  refuse("#pragma unroll _Pragma(0)\nreturn 1;", "_Pragma", "line 1, column 16");
  accept("#pragma unroll 4 // {\nfor (;;) {}");
}

TEST_CASE("what makes compilers and this scanner disagree is refused everywhere") {
  refuse("return 1; // a \\\n }", "joins two lines", "line 1, column 16");
  refuse("return 1; // a \\ \t\r\n }", "joins two lines", "line 1, column 16");
  refuse("return 1; // a \\", "joins two lines", "line 1, column 16");
  refuse("#def\\\nine X", "joins two lines", "line 1, column 5");
  refuse("const char* s = R\"(a\\\nb)\";", "joins two lines", "line 1, column 21");
  refuse(
      "?"
      "?=include <x>",
      "trigraph", "line 1, column 1");
  refuse(
      "// ?"
      "?/\n}",
      "trigraph", "line 1, column 4");
  refuse(
      "return 1; ?"
      "?>",
      "trigraph", "line 1, column 11");
  refuse("// a\r#include <x>", "carriage return", "line 1, column 5");
  refuse(std::string("return 1;\0}", 11), "control character 0", "line 1, column 10");
  refuse("return 1;\f", "control character 12", "line 1, column 10");
  refuse("return 1; \\ ;", "backslash", "line 1, column 11");
  refuse("return $x;", "'$'", "line 1, column 8");
}

TEST_CASE("a body cannot close its function") {
  refuse("return 1; }  __global__ void evil() {", "'}' closes nothing", "line 1, column 11");
  refuse("if (x) {\nreturn 1;", "'{' is never closed", "line 1, column 8");
  refuse("return (1;", "'(' is never closed", "line 1, column 8");
  refuse("return a[1);", "')' closes nothing", "line 1, column 11");
  refuse("( } {", "'}' closes nothing", "line 1, column 3");
  refuse("return 1; %> void f() <%", "%>", "line 1, column 11");
  refuse("<% return 1; %>", "<%", "line 1, column 1");
  refuse("return 1; /* }", "does not end", "line 1, column 11");
  refuse("const char* s = \"}", "literal that does not end", "line 1, column 17");
  refuse("char c = '\n'; }", "literal that does not end", "line 1, column 10");
  refuse("const char* s = R\"(} )x\";", "raw string that does not end", "line 1, column 18");
  refuse("const char* s = R\"a b(})a b\";", "raw string without a valid opening",
         "line 1, column 18");
  refuse("const char* s = R\"12345678901234567(})12345678901234567\";", "raw string without",
         "line 1, column 18");
}

// Where a literal begins decides what is code: each of these closes the function if it is read the
// other way.
TEST_CASE("literals begin where C++ says") {
  refuse("int i = 1'0'0; }", "closes nothing",
         "line 1, column 16");  // digit separators, no character
  refuse("auto s = fooR\"(\"; }", "closes nothing",
         "line 1, column 19");  // an ordinary string behind a name
  refuse("auto s = 1R\"(\"; }", "closes nothing", "line 1, column 17");  // and behind a number
  refuse("auto c = '\"'; }", "closes nothing", "line 1, column 15");
  refuse("auto s = \"\\\\\"; }", "closes nothing", "line 1, column 16");
  accept("auto s = LR\"(\" } )\"; return 1;");
  accept("int i = 0x1'0; char c = '}'; return 1;");
}

TEST_CASE("look-alikes outside ASCII are no names") {
  refuse("return l\xd0\xbegits;", "outside ASCII", "line 1, column 9");
  refuse("return 1\xef\xbc\x9b", "outside ASCII", "line 1, column 9");  // a full-width semicolon
}

std::string times(int count, const std::string& part) {
  std::string text;
  for (int i = 0; i < count; ++i) text += part;
  return text;
}

// Each level is a recursion of the compiler, in the host's process.
TEST_CASE("nesting and runs of prefix operators are bounded") {
  accept("return " + times(256, "(") + "x" + times(256, ")") + ";");
  refuse("\nreturn " + times(257, "(") + "x" + times(257, ")") + ";", "deeper than 256",
         "line 2, column 264");
  refuse(times(100, "{[(") + "x" + times(100, ")]}"), "deeper than 256", "line 1, column 257");
  refuse("#pragma unroll " + times(257, "(") + "4" + times(257, ")"), "deeper than 256",
         "line 1, column 272");
  accept(times(300, "(x);"));
  accept("return " + times(64, "- ") + "x;");
  refuse("return " + times(65, "- ") + "x;", "more than 64 prefix operators", "line 1, column 136");
  refuse("return " + times(33, "!/**/~\n") + "x;", "more than 64 prefix operators",
         "line 33, column 1");
  refuse("return " + times(65, "not ") + "x;", "more than 64 prefix operators",
         "line 1, column 264");
  refuse("#pragma unroll " + times(65, "-") + "4", "more than 64 prefix operators",
         "line 1, column 80");
  accept("return " + times(10000, "x+") + "-x;");
  accept("return " + times(40, "-1 * -") + "x;");
}

TEST_CASE("size and substance") {
  const std::string most = "return 1;" + std::string(kMaxFunctorBytes - 9, ' ');
  accept(most);
  CHECK(scan_functor(most + " ", kPath).status().cause.find("65537 bytes") != std::string::npos);
  for (const char* empty : {"", " \n", "// nothing", "/* nothing */"}) {
    CHECK(scan_functor(empty, kPath).status().cause == "the text has no code");
  }
}

TEST_CASE("identifiers are those of the code") {
  const Result<FunctorTokens> result =
      scan_functor("/* a */ return b + \"c\"[0] + f(1e5d); // e", kPath);
  REQUIRE(result.ok());
  CHECK(result->identifiers == std::set<std::string, std::less<>>{"return", "b", "f"});
}

}  // namespace
}  // namespace attnloom
