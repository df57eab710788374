// SPDX-License-Identifier: Apache-2.0
#include "base/status.h"

#include <catch2/catch.hpp>
#include <set>
#include <string>

namespace attnloom {
namespace {

TEST_CASE("Every code has its own stable name") {
  std::set<std::string_view> names;
  for (int number = 0; number <= 30; ++number) names.insert(code_name(static_cast<Code>(number)));
  CHECK(names.size() == 31);
  CHECK(names.count("UNKNOWN") == 0);
  CHECK(code_name(Code::kSpecInvalid) == "SPEC_INVALID");
  CHECK(code_name(Code::kTensorInvalid) == "TENSOR_INVALID");
  CHECK(code_name(Code::kArgumentInvalid) == "ARGUMENT_INVALID");
  CHECK(code_name(static_cast<Code>(99)) == "UNKNOWN");
}

TEST_CASE("Only passing troubles are retryable") {
  CHECK(is_retryable(Code::kCompileTimeout));
  CHECK(is_retryable(Code::kRemote));
  CHECK_FALSE(is_retryable(Code::kSpecInvalid));
  CHECK_FALSE(is_retryable(Code::kOk));
}

TEST_CASE("A status prints its parts") {
  const Status full = make_error(Code::kSpecInvalid, "$.x", "wanted 1, given 2", "write 1");
  CHECK(full.to_string() == "SPEC_INVALID at $.x: wanted 1, given 2 (write 1)");
  CHECK(make_error(Code::kRemote, "", "gone").to_string() == "REMOTE: gone");
  CHECK(ok_status().ok());
  CHECK(ok_status().to_string() == "OK");
}

Result<int> half(int number) {
  if (number % 2 != 0) return make_error(Code::kArgumentInvalid, "number", "odd");
  return number / 2;
}
Result<int> quarter(int number) {
  ATTNLOOM_TRY(const int first, half(number));
  ATTNLOOM_TRY(const int second, half(first));
  return second;
}
Status check_quarter(int number) {
  ATTNLOOM_CHECK(quarter(number).status());
  return ok_status();
}

TEST_CASE("Errors travel through the macros") {
  CHECK(quarter(8).value() == 2);
  CHECK(quarter(6).status().code == Code::kArgumentInvalid);
  CHECK(check_quarter(8).ok());
  CHECK(check_quarter(2).cause == "odd");
}

}  // namespace
}  // namespace attnloom
