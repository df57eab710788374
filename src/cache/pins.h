// SPDX-License-Identifier: Apache-2.0
// Pins: the request_keys of an own root that are never evicted. An empty file each, `pins/<key>`:
// two processes that pin at once lose nothing, which one list in one file would. A key may be
// pinned before its entry exists.
//
// Thread-safe. `files` outlives it.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/files.h"
#include "base/status.h"

namespace attnloom {

class Pins {
 public:
  Pins(FileSystem& files, std::string base) : files_(files), base_(std::move(base)) {}

  // REQUIRES: `base`/tmp exists; each is_key().
  Status add(const std::vector<std::string>& request_keys);
  // A key that is not pinned is success.
  Status remove(const std::vector<std::string>& request_keys);
  std::set<std::string> all() const;

 private:
  FileSystem& files_;
  const std::string base_;
};

}  // namespace attnloom
