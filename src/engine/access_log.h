// SPDX-License-Identifier: Apache-2.0
// AccessLog: one JSON line for each kernel that this process was asked for, which a later prewarm
// turns into a manifest (manifest_log.h):
//
//   {"classes", "family", "request_key", "source", "spec", "target"}
//
// `spec` has its defaults and `target` filled in. A line is one write at the file's end, so
// processes may share a file. Never fatal: a file that cannot be written is one warning.
// Thread-safe.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <set>
#include <string>

#include "engine/kernel_set.h"
#include "spec/spec.h"

namespace attnloom {

class AccessLog {
 public:
  // `path` "" keeps none.
  AccessLog(std::string path, std::function<void(const std::string&)> warn);

  // Writes a line unless this log has one of the same request_key.
  void note(const Spec& spec, const AcquiredKernel& kernel);

 private:
  const std::string path_;
  const std::function<void(const std::string&)> warn_;
  std::mutex mutex_;
  std::set<std::string> noted_;  // guarded by mutex_
  std::atomic<bool> warned_{false};
};

}  // namespace attnloom
