// SPDX-License-Identifier: Apache-2.0
// Store: artifacts by request_key in one writable directory and any number of read-only ones.
// Entries appear whole or not at all, are verified (SHA-256 trailer) at every read, and a damaged
// one is quarantined, counted and a miss.
//
// Thread-safe. Processes may share a root. Never fatal: a root that cannot be used is left out,
// with one warning that says why and which option overrides it. docs/CACHE.md draws the layout and
// the entry's grammar.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/status.h"
#include "cache/key.h"
#include "cache/layer.h"
#include "cache/remote.h"
#include "cache/trust.h"
#include "compile/artifact.h"

namespace attnloom {

struct StoreOptions {
  std::string root;                    // "" = no writable directory
  std::vector<std::string> read_only;  // searched after root, in order
  // Null: what only this user or root can write is trusted. Otherwise every entry outside the root
  // needs a signature by one of them (docs/decisions/011).
  std::shared_ptr<const TrustedKeys> trust_keys;
  std::optional<RemoteOptions> remote;           // searched last
  std::function<void(const std::string&)> warn;  // one line; may be empty
};

struct Need {
  bool cubin = true;  // a missing part is a miss
  bool ptx = false;
};

struct Found {
  Artifact artifact;
  std::string kernel_key;
  Layer layer = Layer::kDisk;
};

struct StoreCounters {
  std::uint64_t hits = 0;
  std::uint64_t misses = 0;
  std::uint64_t published = 0;
  std::uint64_t quarantined = 0;
  std::uint64_t write_failures = 0;
  std::uint64_t untrusted = 0;  // entries, or whole places, that were passed over
  std::uint64_t remote_published = 0;
  std::uint64_t remote_refused = 0;   // entries that were damaged or not trusted
  std::uint64_t remote_failures = 0;  // requests without a usable answer
};

enum class Asking {
  kRequest,
  kPoll,  // whether another process has published meanwhile: the own root only, misses not counted
};

class Store {
 public:
  // `files` outlives the store.
  Store(FileSystem& files, StoreOptions options);
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // The entry of the newest toolchain that `driver_version` can load (0: no driver, any). Opens no
  // compiler.
  std::optional<Found> find(const std::string& request_key, const std::string& target, Need need,
                            int driver_version, Asking asking = Asking::kRequest);
  // Into the root and, where it is written, the remote. Errors are CACHE_IO of the root and never
  // fatal: the artifact can be used all the same.
  Status publish(const std::string& request_key, const Source& source, const Artifact& artifact);

  const std::string& root() const;          // "" when there is none or it was refused
  const std::string& root_refusal() const;  // why, or ""
  std::string remote() const;               // the server; "" when there is none
  StoreCounters counters() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The default root: `cache_dir` if given, else `xdg_cache_home`/attnloom, else
// `home`/.cache/attnloom, else "".
std::string default_cache_root(const std::string& cache_dir, const std::string& xdg_cache_home,
                               const std::string& home);

}  // namespace attnloom
