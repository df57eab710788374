// SPDX-License-Identifier: Apache-2.0
// BundleFile: a bundle read in place. Opening reads the index; an entry costs one ranged read, one
// frame unpacked and one SHA-256. What does not fit the index is CACHE_CORRUPT, so exchanging the
// file behind an open bundle gives no entry that the index did not name.
//
// Thread-safe: immutable. `files` outlives it.
#pragma once

#include <string>

#include "base/files.h"
#include "base/status.h"
#include "cache/bundle_index.h"

namespace attnloom {

class BundleFile {
 public:
  // `pinned_sha256`: of the whole file, 64 hex digits, or "". Errors: CACHE_IO; CACHE_CORRUPT;
  // UNTRUSTED where the file is not the pinned one.
  static Result<BundleFile> open(FileSystem& files, const std::string& path,
                                 const std::string& pinned_sha256);

  const BundleIndex& index() const { return index_; }
  // Null where it has none.
  const BundleEntry* find(const std::string& request_key, const std::string& fingerprint) const;
  // The .alk file's bytes, as the index promises them; what they are is for decode_entry to say.
  Result<std::string> read(const BundleEntry& entry) const;
  // The bytes of the whole file hold the TOOLCHAINS member and the end that an archive needs. What
  // `verify` adds to reading every entry.
  Status check_archive() const;
  // Everything behind the index, for a copy with another one.
  Result<std::string> frames() const;

 private:
  BundleFile(FileSystem& files, std::string path) : files_(&files), path_(std::move(path)) {}

  FileSystem* files_;
  std::string path_;
  std::uint64_t begin_ = 0;  // of the frames behind the index
  BundleIndex index_;
};

}  // namespace attnloom
