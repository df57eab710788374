// SPDX-License-Identifier: Apache-2.0
#include "cache/pinned_path.h"

#include <string_view>

#include "cache/entry.h"

namespace attnloom {

Result<PinnedPath> parse_pinned_path(const std::string& text) {
  constexpr std::string_view kMark = "#sha256=";
  const std::size_t mark = text.rfind(kMark);
  if (mark == std::string::npos) return PinnedPath{text, ""};
  PinnedPath pinned{text.substr(0, mark), text.substr(mark + kMark.size())};
  if (is_key(pinned.sha256)) return pinned;
  return make_error(Code::kArgumentInvalid, "", "a pinned SHA-256 is 64 lower-case hex digits",
                    "sha256sum FILE prints it");
}

}  // namespace attnloom
