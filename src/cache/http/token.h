// SPDX-License-Identifier: Apache-2.0
// Bearer tokens: read from a file that only its owner can read, compared in constant time, never
// printed. Thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace attnloom::http {

// The text of `path` without white space at its end. Links are followed, as secrets are mounted
// that way. CACHE_IO for a file that cannot be read, that others can read, or that holds no token.
Result<std::string> read_token(const std::string& path);

// Takes the same time wherever the first difference is.
bool same_token(std::string_view a, std::string_view b);

}  // namespace attnloom::http
