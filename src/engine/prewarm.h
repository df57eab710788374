// SPDX-License-Identifier: Apache-2.0
// Prewarm: a list of specs x targets -> a filled store, on a machine without a device.
//
// The engine should have no device, or its targets are limited to what that device can load.
// Thread-safe.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/engine.h"
#include "spec/parse.h"

namespace attnloom {

struct PrewarmItem {
  std::string label;  // of the spec, for people: its file
  ParsedSpec parsed;
  std::vector<Target> targets;  // empty: the spec's own
};

// One kernel of one spec for one target.
struct PrewarmRow {
  std::string label;
  std::string target;
  std::string family;
  std::string request_key;
  std::string kernel_key;  // empty on failure
  std::string origin;      // compiled|disk|memory|readonly, empty on failure
  Status status;           // NOT_CACHED under `check_only`
};

struct PrewarmOptions {
  int jobs = 1;                                 // threads
  bool check_only = false;                      // look up, compile nothing
  std::function<void(const PrewarmRow&)> done;  // may be empty; called from one thread at a time
};

// Rows in the order of items, targets and kernels, whatever `jobs` is.
std::vector<PrewarmRow> prewarm(Engine& engine, const std::vector<PrewarmItem>& items,
                                const PrewarmOptions& options);

}  // namespace attnloom
