// SPDX-License-Identifier: Apache-2.0
// Entries -> the bytes of a bundle. Equal entries, signatures and remarks give equal bytes on every
// machine with one build of the library: no time, user, path or order of arguments shows. Pure;
// thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "cache/bundle_index.h"

namespace attnloom {

struct BundleInput {
  std::string bytes;      // a whole .alk file
  std::string signature;  // text of trust.h, or ""
  Json about;             // BundleEntry::about
};

// `entries` in any order; of two with one name the first counts. CACHE_CORRUPT for one that is not
// whole.
Result<std::string> write_bundle(const std::string& library, const std::string& templates,
                                 std::vector<BundleInput> entries);

// `frames` of a bundle under another index, whose offsets must fit them.
std::string with_bundle_index(const BundleIndex& index, std::string_view frames);

}  // namespace attnloom
