// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/text_format.h"

#include <charconv>
#include <cmath>

namespace attnloom::cli {

std::string fixed(double value, int digits) {
  char text[400];  // the largest double has 309 digits
  const auto end =
      std::to_chars(text, text + sizeof(text), value, std::chars_format::fixed, digits);
  std::string out(text, end.ptr);
  if (digits > 0) {
    while (out.back() == '0') out.pop_back();
    if (out.back() == '.') out.pop_back();
  }
  return out == "-0" ? "0" : out;
}

std::string shown(double value) {
  const double size = std::abs(value);
  return fixed(value, size >= 100 ? 0 : size >= 1 ? 2 : 4);
}

std::string padded(const std::string& text, std::size_t width) {
  return text.size() < width ? std::string(width - text.size(), ' ') + text : text;
}

}  // namespace attnloom::cli
