// SPDX-License-Identifier: Apache-2.0
// ReadOnlyPlace: a directory of entries, or a bundle file, that is searched and never written. What
// it gives is as stored: the store verifies it.
//
// Thread-safe. `files` outlives it.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/files.h"
#include "base/status.h"
#include "cache/bundle_file.h"
#include "cache/layer.h"
#include "cache/trust.h"
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
  // PATH, or PATH#sha256=HEX for a bundle. A regular file is a bundle; its index is read here.
  ReadOnlyPlace(FileSystem& files, const std::string& named);

  const std::string& path() const { return path_; }
  Layer layer() const { return layer_; }
  // Why the place as a whole cannot be read; ok() for a directory, which may still come to be.
  const Status& trouble() const { return trouble_; }
  // As in StoredEntry, for everything in the place.
  const std::string& distrust() const { return distrust_; }
  // Null for a directory and where there is trouble.
  const BundleFile* bundle() const { return bundle_.get(); }

  // Newest first; empty where the place cannot be read.
  std::vector<Fingerprint> toolchains() const;
  // CACHE_IO or NOT_CACHED where there is none; CACHE_CORRUPT for a bundle that does not hold what
  // its index says.
  Result<StoredEntry> read(const std::string& request_key, const std::string& fingerprint) const;
  // (request_key, fingerprint) of every entry, sorted.
  std::vector<std::pair<std::string, std::string>> list() const;

 private:
  void open_bundle(const std::string& sha256);

  FileSystem* files_;
  std::string path_;  // without the digest
  Layer layer_ = Layer::kReadOnly;
  Status trouble_;
  std::string distrust_;
  std::shared_ptr<const BundleFile> bundle_;
};

// What a warning about trust advises.
inline constexpr const char* kTrustRemedy =
    "let this user or root own it alone, or sign its entries and name the keys by trust_keys "
    "(ATTNLOOM_TRUST_KEYS)";

// Whether `keys` or the place vouches for an entry: UNTRUSTED or ok. With `keys` only they do,
// unless `place_suffices`.
Status vouch(const Entry& entry, const StoredEntry& stored, const TrustedKeys* keys,
             bool place_suffices);

}  // namespace attnloom
