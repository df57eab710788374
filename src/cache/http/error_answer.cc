// SPDX-License-Identifier: Apache-2.0
#include "cache/http/error_answer.h"

#include <string>

#include "base/json.h"

namespace attnloom::http {
namespace {

constexpr std::size_t kMostBytes = 64 << 10;
constexpr std::size_t kMostTextBytes = 2000;

std::string text_of(const Json& answer, const char* name) {
  const auto found = answer.find(name);
  if (found == answer.end() || !found->is_string()) return {};
  std::string text = found->get<std::string>().substr(0, kMostTextBytes);
  for (char& letter : text)
    if (static_cast<unsigned char>(letter) < ' ' || letter == 127) letter = ' ';
  return text;
}

Code code_of(const std::string& name) {
  for (int number = 1; number <= static_cast<int>(Code::kArgumentInvalid); ++number)
    if (code_name(static_cast<Code>(number)) == name) return static_cast<Code>(number);
  return Code::kRemote;
}

}  // namespace

Status read_error_answer(std::string_view body) {
  const Status none = make_error(Code::kRemote, "", "it refuses, and does not say why");
  if (body.size() > kMostBytes) return none;
  const Result<JsonDocument> document = parse_json(body, Code::kRemote);
  if (!document.ok() || !document->value.is_object()) return none;
  const Json& answer = document->value;
  Status error = make_error(code_of(text_of(answer, "code")), text_of(answer, "path"),
                            text_of(answer, "cause"), text_of(answer, "remedy"));
  return error.cause.empty() ? none : error;
}

}  // namespace attnloom::http
