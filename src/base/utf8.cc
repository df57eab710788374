// SPDX-License-Identifier: Apache-2.0
#include "base/utf8.h"

#include <cstdint>

namespace attnloom {
namespace {

bool is_continuation(unsigned char byte) {
  return (byte & 0xC0u) == 0x80u;
}

// The length of the well-formed sequence at the start of `text`, or 0.
std::size_t sequence_bytes(std::string_view text) {
  const auto byte = [text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  const std::size_t bytes = lead < 0xC2   ? 0
                            : lead < 0xE0 ? 2
                            : lead < 0xF0 ? 3
                            : lead < 0xF5 ? 4
                                          : 0;
  if (bytes == 0 || text.size() < bytes) return 0;
  for (std::size_t i = 1; i < bytes; ++i) {
    if (!is_continuation(byte(i))) return 0;
  }
  const unsigned char second = byte(1);
  if (lead == 0xE0 && second < 0xA0) return 0;   // overlong
  if (lead == 0xED && second >= 0xA0) return 0;  // surrogate
  if (lead == 0xF0 && second < 0x90) return 0;   // overlong
  if (lead == 0xF4 && second >= 0x90) return 0;  // over 10FFFF
  return bytes;
}

}  // namespace

std::size_t find_invalid_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t bytes = sequence_bytes(text.substr(i));
    if (bytes == 0) return i;
    i += bytes;
  }
  return std::string_view::npos;
}

TextPosition advance_position(TextPosition from, char c) {
  if (c == '\n') return {from.line + 1, 1};
  if (is_continuation(static_cast<unsigned char>(c))) return from;
  return {from.line, from.column + 1};
}

TextPosition position_of(std::string_view text, std::size_t offset) {
  TextPosition position{1, 1};
  for (std::size_t i = 0; i < offset && i < text.size(); ++i) {
    position = advance_position(position, text[i]);
  }
  return position;
}

}  // namespace attnloom
