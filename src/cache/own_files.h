// SPDX-License-Identifier: Apache-2.0
// What lies in an own root, by name and time only; nothing is opened. Thread-safe: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/files.h"

namespace attnloom {

struct OwnFile {
  std::string path;
  std::string request_key;
  std::string fingerprint;
  std::uint64_t bytes = 0;
  std::int64_t mtime_ns = 0;  // when it was last used, to the hour
};

// Entries below `base` (`<root>/v1`), by key. Whatever else lies there is passed over.
std::vector<OwnFile> list_entries(FileSystem& files, const std::string& base);
// Kept failures (failures.h), likewise.
std::vector<OwnFile> list_failures(FileSystem& files, const std::string& base);

// An entry's file, and the signatures beside it where there are some. Errors: those of removing the
// entry; a signature that is left over vouches for nothing but the entry it was made for.
Status remove_entry(FileSystem& files, const std::string& path);

std::uint64_t bytes_of(const std::vector<OwnFile>& files);

}  // namespace attnloom
