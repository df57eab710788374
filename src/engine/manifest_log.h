// SPDX-License-Identifier: Apache-2.0
// Access logs -> the manifest of what they name. Pure; thread-safe.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace attnloom {

struct LogManifest {
  Json manifest;            // as parse_manifest reads it; the same for any order of the same lines
  std::size_t lines = 0;    // used
  std::size_t skipped = 0;  // that are none of ours: torn by a full disk, of another version
};

// `texts`: whole files. SPEC_INVALID where no line can be used.
Result<LogManifest> manifest_from_logs(const std::vector<std::string>& texts);

}  // namespace attnloom
