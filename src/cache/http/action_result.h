// SPDX-License-Identifier: Apache-2.0
// The mapping of a Bazel HTTP cache: which blobs belong to a key, as an ActionResult in the JSON
// form of protocol buffers:
//
//   {"outputFiles": [{"path": NAME, "digest": {"hash": HEX, "sizeBytes": "123"}}, ...]}
//
// sizeBytes is read as text or number; what servers add is passed over. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace attnloom::http {

struct OutputFile {
  std::string path;
  std::string sha256;  // 64 hex digits
  std::uint64_t bytes = 0;
  bool operator==(const OutputFile&) const = default;
};

inline constexpr std::size_t kMostActionResultBytes = 64 << 10;

// CACHE_CORRUPT, with the reason, for text that is no ActionResult of files, or one of a failed
// action.
Result<std::vector<OutputFile>> parse_action_result(std::string_view text);
std::string print_action_result(const std::vector<OutputFile>& files);

// The file of that path; null where there is none.
const OutputFile* find_file(const std::vector<OutputFile>& files, std::string_view path);

}  // namespace attnloom::http
