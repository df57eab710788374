// SPDX-License-Identifier: Apache-2.0
// What a store holds, as facts for people and for "why did this miss?": the store's look-ups never
// read it. Values.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "cache/layer.h"
#include "compile/artifact.h"

namespace attnloom {

struct CatalogEntry {
  Layer layer = Layer::kDisk;
  std::string place;  // directory or file
  std::string request_key;
  Fingerprint compiler;
  bool compiler_listed = true;  // in the place's TOOLCHAINS; else no look-up finds it
  std::string target;
  bool has_ptx = false;
  std::vector<std::string> names;             // of its kernels
  std::map<std::string, std::string> fields;  // name -> digest (field_digests)
};

// One entry's bytes. CACHE_CORRUPT for what is none.
Result<CatalogEntry> catalog_entry(std::string_view bytes);

}  // namespace attnloom
