// SPDX-License-Identifier: Apache-2.0
// Bearer tokens: read from a file that only its owner can read, compared in constant time, never
// printed. Thread-safe.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/status.h"

namespace attnloom::http {

// A secret of at most `most_bytes`. Links are followed, as secrets are mounted that way. CACHE_IO,
// with the reason, for a file that cannot be read or that others can read.
Result<std::string> read_private_file(const std::string& path, std::size_t most_bytes);

// The text of such a file without white space at its end; CACHE_IO also where that is no token.
Result<std::string> read_token(const std::string& path);

// Takes the same time wherever the first difference is.
bool same_token(std::string_view a, std::string_view b);

}  // namespace attnloom::http
