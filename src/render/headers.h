// SPDX-License-Identifier: Apache-2.0
// The embedded headers that a program can reach by #include. Pure; thread-safe.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "render/embedded.h"
#include "render/source.h"

namespace attnloom {

// Headers that `text` includes, directly or through others, sorted by name. Only `#include "name"`
// at the start of a line counts: `text` is an entry template and `files` are stripped of comments.
// A name outside `files` is an error (TEMPLATE), since no compiler would find it either.
Result<std::vector<Header>> reachable_headers(std::string_view text,
                                              std::span<const EmbeddedFile> files);

// The file of that name, or null.
const EmbeddedFile* find_embedded(std::string_view name, std::span<const EmbeddedFile> files);

}  // namespace attnloom
