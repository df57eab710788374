// SPDX-License-Identifier: Apache-2.0
#include "cache/http/answer_head.h"

#include <algorithm>
#include <charconv>

namespace attnloom::http {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

bool is_name(std::string_view given, std::string_view lower_case) {
  const auto same = [](char a, char b) {
    return (a >= 'A' && a <= 'Z' ? static_cast<char>(a - 'A' + 'a') : a) == b;
  };
  return std::equal(given.begin(), given.end(), lower_case.begin(), lower_case.end(), same);
}

}  // namespace

void read_head_line(std::string_view line, std::optional<std::uint64_t>& content_length,
                    std::string& signature) {
  if (line.starts_with("HTTP/")) {
    content_length.reset();
    signature.clear();
    return;
  }
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos) return;
  const std::string_view name = line.substr(0, colon);
  const std::string_view value = trimmed(line.substr(colon + 1));
  if (is_name(name, "content-length")) {
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    content_length.reset();
    if (error == std::errc{} && end == value.data() + value.size()) content_length = number;
  } else if (is_name(name, "attnloom-signature")) {
    signature = value;
  }
}

}  // namespace attnloom::http
