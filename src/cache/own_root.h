// SPDX-License-Identifier: Apache-2.0
// OwnRoot: the writable directory. Entries appear whole or not at all; one that is damaged is moved
// to quarantine, counted, and a miss.
//
// Thread-safe; processes may share a root. `files` outlives it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/status.h"
#include "cache/entry.h"
#include "cache/root_care.h"
#include "compile/artifact.h"

namespace attnloom {

class OwnRoot {
 public:
  using Warn = std::function<void(const std::string&)>;  // one line; never empty

  // `root` as the user gave it; "" = none. A root that must not be used (root_check.h) is refused
  // with a warning and stands for none.
  OwnRoot(FileSystem& files, const std::string& root, Warn warn, CareOptions care = {});

  const std::string& path() const { return root_; }  // "" when there is none or it was refused
  const std::string& refusal() const { return refusal_; }
  RootCare* care() { return care_.get(); }  // null when path() is empty
  const RootCare* care() const { return care_.get(); }

  std::vector<Fingerprint> toolchains() const;
  // A whole, verified entry of this key and compiler; nullopt where it is absent, not ours or
  // damaged.
  std::optional<Entry> read(const std::string& request_key, const std::string& fingerprint,
                            Unpack unpack);
  // Keeps `bytes` = encode_entry(...) of `artifact`. An entry that holds more parts replaces one
  // that lacks them; otherwise the first publisher wins.
  Status publish(const std::string& request_key, const Artifact& artifact,
                 const std::function<std::string()>& encode);

  // Once, before the first write: a process that only reads leaves no trace. REQUIRES: path() is
  // not empty.
  Status prepare();
  // Quarantines an entry that is whole and all the same of no use, if it is there.
  void reject(const std::string& request_key, const std::string& fingerprint,
              const std::string& reason);

  std::uint64_t published() const { return published_; }
  std::uint64_t quarantined() const { return quarantined_; }

 private:
  std::string base() const;
  void quarantine(const std::string& path, const std::string& reason);
  Status list_toolchain(const Fingerprint& fingerprint);

  FileSystem& files_;
  Warn warn_;
  std::string root_;
  std::string refusal_;
  std::unique_ptr<RootCare> care_;
  std::atomic<bool> prepared_{false};
  std::atomic<std::uint64_t> published_{0}, quarantined_{0};
};

// What a warning about the root advises.
inline constexpr const char* kRootRemedy =
    "name another directory by cache_dir (ATTNLOOM_CACHE_DIR)";

// "" or why a decoded entry is not the one that its name says.
std::string refuse_entry(const Result<Entry>& entry, const std::string& request_key,
                         const std::string& fingerprint);

}  // namespace attnloom
