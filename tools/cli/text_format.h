// SPDX-License-Identifier: Apache-2.0
// Numbers as tables and pictures show them, the same under every locale. Pure; thread-safe.
#pragma once

#include <cstddef>
#include <string>

namespace attnloom::cli {

// With at most `digits` behind the point, without zeros at the end.
std::string fixed(double value, int digits);
// As people read it: whole from 100 on, and below 1 with four digits instead of two.
std::string shown(double value);
// Spaces in front, up to `width` characters.
std::string padded(const std::string& text, std::size_t width);

}  // namespace attnloom::cli
