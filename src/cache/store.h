// SPDX-License-Identifier: Apache-2.0
// Store: artifacts by request_key in one writable directory and any number of read-only ones.
// Entries appear whole or not at all, are verified (SHA-256 trailer) at every read, and a damaged
// one is quarantined, counted and a miss.
//
// Thread-safe. Processes may share a root. Never fatal: a root that cannot be used is left out,
// with one warning that says why and which option overrides it. docs/CACHE.md draws the layout and
// the entry's grammar.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/status.h"
#include "cache/catalog.h"
#include "cache/key.h"
#include "cache/layer.h"
#include "cache/remote.h"
#include "cache/root_care.h"
#include "cache/trust.h"
#include "compile/artifact.h"

namespace attnloom {

struct StoreOptions {
  std::string root;  // "" = no writable directory
  // Directories and bundles, PATH or PATH#sha256=HEX; searched after root, in order.
  std::vector<std::string> read_only;
  // Null: what only this user or root can write is trusted. Otherwise every entry outside the root
  // needs a signature by one of them (docs/decisions/011).
  std::shared_ptr<const TrustedKeys> trust_keys;
  std::optional<RemoteOptions> remote;           // searched last
  std::function<void(const std::string&)> warn;  // one line; may be empty
  CareOptions care;                              // of root
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

// Of one layer; a layer of several places counts for each of them.
struct LayerCounters {
  std::uint64_t hits = 0;
  std::uint64_t misses = 0;
  std::uint64_t corrupt = 0;
  std::uint64_t bytes = 0;  // of cubins and PTX that were given
  bool operator==(const LayerCounters&) const = default;
};

struct StoreCounters {
  std::uint64_t hits = 0;
  std::uint64_t misses = 0;
  std::uint64_t published = 0;
  std::uint64_t quarantined = 0;
  std::uint64_t write_failures = 0;
  // Entries outside the root, or whole places, that nobody vouches for.
  std::uint64_t untrusted = 0;
  std::uint64_t evicted = 0;
  std::uint64_t evicted_bytes = 0;
  std::array<LayerCounters, kLayers> layers;  // by Layer
  std::uint64_t remote_published = 0;
  std::uint64_t remote_refused = 0;   // entries that were damaged or not trusted
  std::uint64_t remote_failures = 0;  // requests without a usable answer
};

// A bundle that is searched.
struct BundleSummary {
  std::string path;
  std::string templates;  // of the library that wrote it
  std::vector<std::string> targets;
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
  // The device refused this entry. It is quarantined in the own root, and passed over from now on
  // in every other place.
  void reject(const std::string& request_key, const std::string& fingerprint,
              const std::string& reason);

  // Keys whose entries in the root are never evicted, whether they are there yet or not. Errors:
  // ARGUMENT_INVALID for what is no key, CACHE_IO; a store without a root pins nothing.
  Status pin(const std::vector<std::string>& request_keys);
  Status unpin(const std::vector<std::string>& request_keys);
  std::set<std::string> pins() const;

  // A compile that failed within the last hour and would fail again (failures.h).
  std::optional<Status> find_failure(const std::string& request_key,
                                     const std::string& fingerprint) const;
  // What is no lasting failure, or cannot be written, is not kept.
  void keep_failure(const std::string& request_key, const std::string& fingerprint,
                    const Status& failure);

  // What the root and the read-only places hold, at most `most` entries; damaged ones are left out.
  // Reads them all and changes nothing.
  std::vector<CatalogEntry> catalog(std::size_t most) const;

  const std::string& root() const;          // "" when there is none or it was refused
  const std::string& root_refusal() const;  // why, or ""
  std::vector<BundleSummary> bundles() const;
  std::string remote() const;  // the server; "" when there is none
  StoreCounters counters() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The default root: `cache_dir` if given, else `xdg_cache_home`/attnloom, else
// `home`/.cache/attnloom, else "". Relative values of the last two are as if they were not there.
std::string default_cache_root(const std::string& cache_dir, const std::string& xdg_cache_home,
                               const std::string& home);

}  // namespace attnloom
