// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string>

#include "sim/ptx/parser.h"

namespace attnloom::sim {
namespace {

template <class To, class From>
To bits_as(From from) {
  To to;
  static_assert(sizeof(To) == sizeof(From));
  std::memcpy(&to, &from, sizeof to);
  return to;
}

std::optional<std::uint64_t> integer(std::string_view digits, int base) {
  while (!digits.empty() && (digits.back() == 'U' || digits.back() == 'u')) digits.remove_suffix(1);
  std::uint64_t value = 0;
  auto end = digits.data() + digits.size();
  auto parsed = std::from_chars(digits.data(), end, value, base);
  if (parsed.ec != std::errc() || parsed.ptr != end || digits.empty()) return std::nullopt;
  return value;
}

std::uint64_t float_bits(double value, Type type) {
  if (type_bytes(type) == 8) return bits_as<std::uint64_t>(value);
  return bits_as<std::uint32_t>(static_cast<float>(value));
}

}  // namespace

std::optional<std::uint64_t> literal_bits(std::string_view text, Type type) {
  if (text == "WARP_SZ") return 32;
  bool negative = !text.empty() && text[0] == '-';
  if (negative) text.remove_prefix(1);
  if (text.empty() || text[0] < '0' || text[0] > '9') return std::nullopt;
  std::optional<std::uint64_t> value;
  char kind = text.size() > 2 && text[0] == '0' ? text[1] : '\0';
  if (kind == 'f' || kind == 'F') {
    value = integer(text.substr(2), 16);
    if (!value) return std::nullopt;
    double as_double = bits_as<float>(static_cast<std::uint32_t>(*value));
    return type == Type::kF64 ? float_bits(negative ? -as_double : as_double, type)
                              : (negative ? *value ^ 0x80000000u : *value);
  }
  if (kind == 'd' || kind == 'D') {
    value = integer(text.substr(2), 16);
    if (!value) return std::nullopt;
    double as_double = bits_as<double>(*value);
    if (negative) as_double = -as_double;
    return is_float(type) ? float_bits(as_double, type) : bits_as<std::uint64_t>(as_double);
  }
  if (text.find('.') != std::string_view::npos) {
    double as_double = std::strtod(std::string(text).c_str(), nullptr);
    return float_bits(negative ? -as_double : as_double, type);
  }
  if (kind == 'x' || kind == 'X') {
    value = integer(text.substr(2), 16);
  } else if (kind == 'b' || kind == 'B') {
    value = integer(text.substr(2), 2);
  } else {
    value = integer(text, text.size() > 1 && text[0] == '0' ? 8 : 10);
  }
  if (value && negative) value = 0 - *value;
  return value;
}

}  // namespace attnloom::sim
