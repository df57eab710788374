// SPDX-License-Identifier: Apache-2.0
// Manifest: the list of what a prewarm makes, as strict JSON -> PrewarmItems. docs/DEPLOY.md tells
// users what it says, docs/manifest.schema.json is its schema.
//
// An entry names a spec (inline, a file, or a shipped variant) and may span a grid over any field
// of it. Pure but for `read_file`; thread-safe.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "engine/prewarm.h"
#include "spec/types.h"

namespace attnloom {

inline constexpr int kManifestVersion = 1;
// A grid is a product: a few lists too many, and it means days of compiling.
inline constexpr std::size_t kMostManifestSpecs = 20'000;

struct Manifest {
  std::vector<PrewarmItem> items;  // in the order of entries and grid points; targets never empty
  bool pins = false;               // what was made is to be kept from eviction
};

struct ManifestOptions {
  // The text of a spec file that an entry names, as it is written there.
  std::function<Result<std::string>(const std::string& path)> read_file;
  std::vector<Target> targets;  // if any, in place of every other
};

// Errors: SPEC_INVALID with the manifest's own path and line (of the grid's value where that is at
// fault), those of read_file with the entry's path.
Result<Manifest> parse_manifest(std::string_view text, const ManifestOptions& options);

}  // namespace attnloom
