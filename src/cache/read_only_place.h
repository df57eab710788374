// SPDX-License-Identifier: Apache-2.0
// ReadOnlyPlace: a directory of entries that is searched and never written. What it gives is as
// stored: the store verifies it.
//
// Thread-safe. `files` outlives it.
#pragma once

#include <string>
#include <vector>

#include "base/files.h"
#include "base/status.h"
#include "cache/layer.h"
#include "compile/artifact.h"

namespace attnloom {

// An entry as a place holds it.
struct StoredEntry {
  std::string bytes;
  std::string signature;  // "" where there is none
  // Why nobody but a signature vouches for it: others could have written it. "" = trusted like the
  // own root (docs/decisions/011).
  std::string distrust;
};

class ReadOnlyPlace {
 public:
  ReadOnlyPlace(FileSystem& files, std::string path);

  const std::string& path() const { return path_; }
  Layer layer() const { return Layer::kReadOnly; }
  // As in StoredEntry, for everything in the place.
  const std::string& distrust() const { return distrust_; }
  // Newest first; empty where the place cannot be read.
  std::vector<Fingerprint> toolchains() const;
  // The error of the file system where there is none.
  Result<StoredEntry> read(const std::string& request_key, const std::string& fingerprint) const;

 private:
  FileSystem* files_;
  std::string path_;
  std::string distrust_;
};

}  // namespace attnloom
