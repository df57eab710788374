// SPDX-License-Identifier: Apache-2.0
// Prewarm: a list of specs x targets -> a filled store, on a machine without a device.
//
// The engine should have no device, or its targets are limited to what that device can load.
// Thread-safe.
#pragma once

#include <cstdint>
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

// One kernel of one spec for one target. Kernels of several specs that have one request_key are one
// row.
struct PrewarmRow {
  std::string label;
  std::string target;
  KernelChoice choice;                // the settled one
  std::string request_key;            // of the kernel in use
  std::string kernel_key;             // empty on failure
  std::string origin;                 // compiled|disk|memory|readonly|..., empty on failure
  std::vector<std::string> all_keys;  // of every entry that a look-up walks through, in order
  double seconds = 0;                 // spent on it
  Status status;                      // NOT_CACHED under `check_only`
};

struct PrewarmReport {
  std::vector<PrewarmRow> rows;  // in the order of items, targets and kernels, whatever `jobs` is
  std::size_t duplicates = 0;    // kernels that an earlier row is already
  std::size_t elsewhere = 0;     // kernels that belong to other shards
  std::size_t pinned = 0;        // entries
  Status pin_status;             // CACHE_IO where they could not be pinned
};

// Which part of a manifest is done here. A kernel belongs to one shard by its request_key, so
// shards of one manifest never do the same kernel.
struct PrewarmShard {
  std::uint32_t index = 0;  // from 0, below count
  std::uint32_t count = 1;
};

struct PrewarmOptions {
  int jobs = 1;             // threads
  bool check_only = false;  // look up, compile nothing
  bool pin = false;         // keep what is made from eviction; not with check_only
  PrewarmShard shard;
  std::function<void(std::size_t rows)> begin;  // may be empty; before the first row is done
  std::function<void(const PrewarmRow&)> done;  // may be empty; called from one thread at a time
};

// A row is ready when a layer had every entry of it, or when it was compiled and the store's own
// directory gave it back: CACHE_IO otherwise, as a kernel that stays in this process's memory is of
// no use to another. (Without such a directory nothing is read back.)
PrewarmReport prewarm(Engine& engine, const std::vector<PrewarmItem>& items,
                      const PrewarmOptions& options);

}  // namespace attnloom
