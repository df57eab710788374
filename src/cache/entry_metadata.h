// SPDX-License-Identifier: Apache-2.0
// The metadata of a cache entry as canonical JSON. Thread-safe: pure functions.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/status.h"
#include "compile/artifact.h"
#include "render/source.h"

namespace attnloom {

std::string encode_metadata(const Source& source, const Artifact& artifact);

// Fills in all of `artifact` but cubin and PTX.
Status decode_metadata(std::string_view text, Artifact& artifact,
                       std::map<std::string, std::string>& fields);

}  // namespace attnloom
