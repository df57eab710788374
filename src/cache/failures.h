// SPDX-License-Identifier: Apache-2.0
// Failures: compiles that failed and would fail again, kept for an hour so that a spec that cannot
// compile costs one compile an hour and not one a request.
//
//   file = canonical JSON {attnloom_failure, cause, code, path, remedy} "\n" digest "\n"
//   digest = 64 hex digits, SHA-256 over request_key, fingerprint and the JSON: a file that was
//   moved, cut or changed is no failure of this key
//
// Thread-safe. `files` outlives it.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "base/files.h"
#include "base/status.h"

namespace attnloom {

inline constexpr std::int64_t kFailureLifeNs = std::int64_t{3600} * 1'000'000'000;

// The same text fails with the same compiler again: COMPILE_FAILED and RESOURCE_LIMIT. Never what a
// machine, a moment or a caller did: memory, time, cancelling, a missing compiler.
bool is_lasting_failure(const Status& status);

class Failures {
 public:
  Failures(FileSystem& files, std::string base) : files_(files), base_(std::move(base)) {}

  // What is younger than an hour, whole and nobody else's.
  std::optional<Status> find(const std::string& request_key, const std::string& fingerprint,
                             std::int64_t now_ns) const;
  // REQUIRES: is_lasting_failure(status); `base`/tmp exists.
  Status keep(const std::string& request_key, const std::string& fingerprint, const Status& status,
              std::int64_t now_ns);
  // Removes what has expired, at most every ten minutes unless `all`: then everything. The number
  // of files removed.
  int sweep(std::int64_t now_ns, bool all = false);

 private:
  std::string path(const std::string& request_key, const std::string& fingerprint) const;

  FileSystem& files_;
  const std::string base_;
  std::atomic<std::int64_t> swept_ns_{0};
};

}  // namespace attnloom
