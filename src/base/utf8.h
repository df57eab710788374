// SPDX-License-Identifier: Apache-2.0
// UTF-8 checks and places in a text. Pure functions.
#pragma once

#include <cstddef>
#include <string_view>

#include "base/json.h"

namespace attnloom {

// The offset of the first byte that is not well-formed UTF-8 (overlong forms, surrogates and values
// over 10FFFF included), or npos.
std::size_t find_invalid_utf8(std::string_view text);

// The place after `c`, when `from` is the place of `c`. Columns count characters, not bytes.
TextPosition advance_position(TextPosition from, char c);
TextPosition position_of(std::string_view text, std::size_t offset);

}  // namespace attnloom
