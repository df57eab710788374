// SPDX-License-Identifier: Apache-2.0
// The process locale of a host program must not change a value, a text or a key.
#include <catch2/catch.hpp>
#include <clocale>
#include <locale>
#include <string>

#include "base/json.h"

namespace attnloom {
namespace {

class CommaNumbers : public std::numpunct<char> {
 protected:
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};

class LocaleGuard {
 public:
  LocaleGuard() : c_before_(std::setlocale(LC_ALL, nullptr)) {}
  ~LocaleGuard() {
    std::locale::global(cpp_before_);
    std::setlocale(LC_ALL, c_before_.c_str());
  }

 private:
  std::string c_before_;
  std::locale cpp_before_;
};

void check_numbers() {
  const auto parsed = parse_json("{\"scale\":0.125,\"eps\":1e-05,\"n\":1234567,\"x\":1234567.5}",
                                 Code::kSpecInvalid);
  REQUIRE(parsed.ok());
  CHECK(parsed->value["scale"] == 0.125);
  CHECK(parsed->value["x"] == 1234567.5);
  CHECK(canonical_json(parsed->value) ==
        "{\"eps\":1e-05,\"n\":1234567,\"scale\":0.125,\"x\":1234567.5}");
  CHECK_FALSE(parse_json("[1.5e999]", Code::kSpecInvalid).ok());
  const auto error = parse_json("{\"a\":\n1234567.5.5}", Code::kSpecInvalid);
  REQUIRE_FALSE(error.ok());
  CHECK(error.status().cause.find("line 2, column 10") == 0);
}

TEST_CASE("A C++ locale with a comma changes nothing") {
  const LocaleGuard guard;
  std::locale::global(std::locale(std::locale::classic(), new CommaNumbers));
  check_numbers();
}

// Where none of these is installed the parse runs under the "C" locale and proves nothing new.
TEST_CASE("A C locale with a comma changes nothing") {
  const LocaleGuard guard;
  for (const char* name :
       {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "ps_AF.UTF-8", "fa_IR.UTF-8"}) {
    if (std::setlocale(LC_ALL, name) == nullptr) continue;
    CAPTURE(name);
    check_numbers();
    CHECK(std::string(std::setlocale(LC_ALL, nullptr)) == name);
  }
}

}  // namespace
}  // namespace attnloom
