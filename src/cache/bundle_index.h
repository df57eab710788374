// SPDX-License-Identifier: Apache-2.0
// A bundle (`.alb`): entries in one file that is read in place.
//
//   bundle = frame(index.json) frame(TOOLCHAINS) frame(entry)* frame(end)      each one zstd frame
//   frame of a member = its tar header, content and padding, so that unpacking the whole file gives
//   a tar archive:  attnloom/v1/index.json  attnloom/v1/TOOLCHAINS  attnloom/v1/k/ab/<entry>.alk
//   ...
//
// Entries are sorted by name. Offsets in the index count from the end of its own frame, so that it
// needs not know its own length, and signatures can be added without moving anything. docs/CACHE.md
// lists its keys. Values; pure; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "compile/artifact.h"

namespace attnloom {

inline constexpr std::uint64_t kBundleVersion = 1;

struct BundleEntry {
  std::string request_key;
  std::string fingerprint;
  std::string target;
  std::uint64_t offset = 0;       // of its frame
  std::uint64_t frame_bytes = 0;  // packed
  std::uint64_t bytes = 0;        // of the .alk file
  std::string sha256;             // of the same
  std::string cubin_sha256;
  std::string ptx_sha256;  // "" where the PTX was dropped
  std::string signature;   // text of trust.h, or ""
  Json about;              // for people: {"variant": .., "spec": ..}, or null
};

struct BundleIndex {
  std::string library;                  // version of the library that wrote it
  std::string templates;                // template_set_digest() of that library
  std::vector<Fingerprint> toolchains;  // newest first
  std::vector<BundleEntry> entries;     // by request_key, then fingerprint
};

// Without version: that is kBundleVersion.
std::string print_bundle_index(const BundleIndex& index);
// CACHE_CORRUPT, with the reason, for anything that print_bundle_index would not write.
Result<BundleIndex> parse_bundle_index(std::string_view text);

std::string bundle_member_name(const BundleEntry& entry);
inline constexpr std::string_view kBundleIndexName = "attnloom/v1/index.json";
inline constexpr std::string_view kBundleToolchainsName = "attnloom/v1/TOOLCHAINS";

// The targets of the entries, sorted, each once.
std::vector<std::string> bundle_targets(const BundleIndex& index);

}  // namespace attnloom
