// SPDX-License-Identifier: Apache-2.0
// ReadOnlyPlace: a directory of entries that is searched and never written. What it gives is as
// stored: the store verifies it.
//
// Thread-safe. `files` outlives it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/files.h"
#include "base/status.h"
#include "cache/layer.h"
#include "compile/artifact.h"

namespace attnloom {

class ReadOnlyPlace {
 public:
  ReadOnlyPlace(FileSystem& files, std::string path);

  const std::string& path() const { return path_; }
  Layer layer() const { return Layer::kReadOnly; }
  // Newest first; empty where the place cannot be read.
  std::vector<Fingerprint> toolchains() const;
  // The bytes of an entry, or the error of the file system.
  Result<std::string> read(const std::string& request_key, const std::string& fingerprint) const;
  // (request_key, fingerprint) of every entry, sorted.
  std::vector<std::pair<std::string, std::string>> list() const;

 private:
  FileSystem* files_;
  std::string path_;
};

}  // namespace attnloom
