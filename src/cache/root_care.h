// SPDX-License-Identifier: Apache-2.0
// RootCare: what keeps an own root within its size and clean of leftovers. Entries that were not
// used for longest go first; pinned ones and those of the last ten minutes stay.
//
// An entry's time of use is its file's mtime, moved at most once an hour: reading stays one read,
// and a mount without access times works too. `state/size` has one byte for each started 64 KiB
// that was published, so that adding to it needs no lock; it is a hint that a collection replaces
// by what it counted. `state/gc.lock` makes one process collect; where it cannot be locked two may,
// and both remove what is old.
//
// Thread-safe; processes may share a root. `files` outlives it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "base/files.h"
#include "base/status.h"
#include "cache/failures.h"
#include "cache/pins.h"

namespace attnloom {

inline constexpr std::uint64_t kDefaultCacheBytes = std::uint64_t{2} << 30;
inline constexpr std::uint64_t kLeastCacheBytes = std::uint64_t{64} << 20;

struct CareOptions {
  std::uint64_t max_bytes = kDefaultCacheBytes;  // of entries
  std::function<std::int64_t()> now_ns;          // since 1970; empty: the system's clock
};

// What one collection did.
struct Collection {
  bool ran = false;  // false: another process was at it
  std::uint64_t entries = 0;
  std::uint64_t bytes = 0;  // of entries, before
  std::uint64_t evicted = 0;
  std::uint64_t evicted_bytes = 0;
  std::uint64_t pinned_bytes = 0;
  std::uint64_t temps = 0;     // files of dead writers that were removed
  std::uint64_t failures = 0;  // expired ones that were removed
};

enum class ClearPinned { kNo, kYes };

// What was removed by hand.
struct Cleared {
  std::uint64_t entries = 0;
  std::uint64_t bytes = 0;
  std::uint64_t failures = 0;
  std::uint64_t quarantined = 0;
};

class RootCare {
 public:
  RootCare(FileSystem& files, std::string base, CareOptions options,
           std::function<void(const std::string&)> warn);

  std::int64_t now_ns() const;
  std::uint64_t max_bytes() const { return options_.max_bytes; }
  Pins& pins() { return pins_; }
  Failures& failures() { return failures_; }

  // An entry of this mtime was used just now.
  void used(const std::string& path, std::int64_t mtime_ns);
  // An entry of so many bytes was published. Collects when the root has outgrown its limit, but not
  // twice in a minute: pinned and young entries may leave it above.
  void published(const std::string& path, std::uint64_t bytes);
  Collection collect();
  // Files of writers that were killed. A live writer's file is younger by far.
  int sweep_temps();
  // Keeps the newest 32 of what was quarantined, and no more than 64 MiB.
  void trim_quarantine();
  // Removes entries, kept failures and quarantine; what is being written stays.
  Cleared clear(ClearPinned pinned);

  std::uint64_t evicted() const { return evicted_; }
  std::uint64_t evicted_bytes() const { return evicted_bytes_; }

 private:
  void count_anew();
  void set_size(std::uint64_t bytes);
  bool collected_just_now() const;
  void evict(Collection& done);

  FileSystem& files_;
  const std::string base_;
  const CareOptions options_;
  const std::function<void(const std::string&)> warn_;
  Pins pins_;
  Failures failures_;
  std::atomic<bool> cannot_touch_{false}, cannot_count_{false};
  std::atomic<std::uint64_t> evicted_{0}, evicted_bytes_{0};
};

}  // namespace attnloom
