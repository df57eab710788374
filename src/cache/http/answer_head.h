// SPDX-License-Identifier: Apache-2.0
// Header lines of an answer, as they come from a server that may lie. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace attnloom::http {

// One line with or without its end. A status line forgets what an earlier answer said; a length
// that is no number counts as not said.
void read_head_line(std::string_view line, std::optional<std::uint64_t>& content_length,
                    std::string& signature);

}  // namespace attnloom::http
