// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace attnloom {
namespace {

void write_string(std::string_view text, std::string& out) {
  constexpr char kHex[] = "0123456789abcdef";
  out += '"';
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        if (byte < 0x20) {
          out += "\\u00";
          out += kHex[byte >> 4];
          out += kHex[byte & 15u];
        } else {
          out += c;
        }
    }
  }
  out += '"';
}

template <class Number>
std::string_view print_number(Number value, char (&buffer)[32]) {
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  return {buffer, static_cast<std::size_t>(end - buffer)};
}

// to_chars and not the library's dump: that one is not always the shortest, and iostreams follow
// the locale.
void write_float(double value, std::string& out) {
  if (!std::isfinite(value)) {
    out += "null";  // JSON has no such number; callers write "nan" and "inf" as strings
    return;
  }
  char buffer[32];
  const std::string_view digits = print_number(value, buffer);
  out += digits;
  // A float stays a float when it is read again: 1.0 and 1 are different values here.
  if (digits.find_first_of(".e") == std::string_view::npos) out += ".0";
}

void write_value(const Json& value, std::string& out) {
  char buffer[32];
  switch (value.type()) {
    case Json::value_t::object: {
      out += '{';
      const char* separator = "";
      for (const auto& [key, member] : value.items()) {  // a std::map: sorted by byte
        out += separator;
        write_string(key, out);
        out += ':';
        write_value(member, out);
        separator = ",";
      }
      out += '}';
      return;
    }
    case Json::value_t::array: {
      out += '[';
      const char* separator = "";
      for (const Json& element : value) {
        out += separator;
        write_value(element, out);
        separator = ",";
      }
      out += ']';
      return;
    }
    case Json::value_t::string:
      write_string(value.get_ref<const std::string&>(), out);
      return;
    case Json::value_t::boolean:
      out += value.get<bool>() ? "true" : "false";
      return;
    case Json::value_t::number_integer:
      out += print_number(value.get<std::int64_t>(), buffer);
      return;
    case Json::value_t::number_unsigned:
      out += print_number(value.get<std::uint64_t>(), buffer);
      return;
    case Json::value_t::number_float:
      write_float(value.get<double>(), out);
      return;
    default:
      out += "null";
      return;
  }
}

// Levenshtein distance.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replace = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replace, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string canonical_json(const Json& value) {
  std::string out;
  write_value(value, out);
  return out;
}

std::string nearest_name(std::string_view given, const std::vector<std::string>& known) {
  constexpr std::size_t kMaxDistance = 3;
  std::string nearest;
  std::size_t nearest_distance = kMaxDistance + 1;
  for (const std::string& name : known) {
    const std::size_t longer = std::max(given.size(), name.size());
    // The given name may be 64 KB of garbage; the table of distances is only built where it can
    // matter.
    if (longer - std::min(given.size(), name.size()) > kMaxDistance) continue;
    const std::size_t distance = edit_distance(given, name);
    // Of a short name half the letters may differ at most: "q" is not near "o".
    if (distance < nearest_distance && distance * 2 <= longer) {
      nearest = name;
      nearest_distance = distance;
    }
  }
  return nearest;
}

}  // namespace attnloom
