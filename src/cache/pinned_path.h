// SPDX-License-Identifier: Apache-2.0
// PATH or PATH#sha256=HEX: a place with the digest of its one file. Pure; thread-safe.
#pragma once

#include <string>

#include "base/status.h"

namespace attnloom {

struct PinnedPath {
  std::string path;
  std::string sha256;  // 64 lower-case hex digits, or "" where nothing is pinned
};

// ARGUMENT_INVALID for a digest that is none.
Result<PinnedPath> parse_pinned_path(const std::string& text);

}  // namespace attnloom
