// SPDX-License-Identifier: Apache-2.0
#include "base/byte_size.h"

#include <charconv>
#include <cstdio>
#include <limits>

namespace attnloom {
namespace {

constexpr std::string_view kUnits = "KMGT";

}  // namespace

std::optional<std::uint64_t> parse_byte_size(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  if (unit.empty()) return number;
  const char letter = unit[0] >= 'a' ? static_cast<char>(unit[0] - 'a' + 'A') : unit[0];
  const std::size_t power = kUnits.find(letter);
  unit.remove_prefix(1);
  if (power == std::string_view::npos || !(unit.empty() || unit == "iB" || unit == "B"))
    return std::nullopt;
  const std::size_t shift = 10 * (power + 1);
  if (number > std::numeric_limits<std::uint64_t>::max() >> shift) return std::nullopt;
  return number << shift;
}

std::string byte_size_text(std::uint64_t bytes) {
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit < kUnits.size(); ++unit) value /= 1024;
  if (unit == 0) return std::to_string(bytes) + " B";
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %ciB", value, kUnits[unit - 1]);
  return text;
}

}  // namespace attnloom
