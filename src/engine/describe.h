// SPDX-License-Identifier: Apache-2.0
// Parts of a kernel as JSON, for describe, the access log and the CLI. Pure; thread-safe.
#pragma once

#include "base/json.h"
#include "spec/tiles.h"

namespace attnloom {

// [{"q", "kv", "stages"}]
Json classes_json(const KernelChoice& choice);

}  // namespace attnloom
