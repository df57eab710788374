// SPDX-License-Identifier: Apache-2.0
// Which targets a device can run, and in which order a look-up without a named target tries them.
// Pure; thread-safe.
#pragma once

#include <vector>

#include "runtime/backend.h"
#include "spec/types.h"

namespace attnloom {

// Whether the device can load a kernel compiled for `target`.
bool device_accepts(const DeviceInfo& device, const Target& target);

// Behind the device's own target: the family's 'f' targets, then base targets of the same major
// downwards. Only looked up, never compiled.
std::vector<Target> fallback_targets(const Target& own);

}  // namespace attnloom
