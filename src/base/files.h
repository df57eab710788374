// SPDX-License-Identifier: Apache-2.0
// FileSystem: what the cache needs of a disk, as an interface so that tests can make it fail at any
// call.
//
// RealFileSystem never follows a symbolic link at the last component, creates directories 0700 and
// files 0600 whatever the umask, and fsyncs before it publishes. Implementations are thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace attnloom {

struct FileInfo {
  bool exists = false;
  bool is_regular = false;
  bool is_directory = false;
  bool is_symlink = false;
  std::uint64_t bytes = 0;
  std::uint32_t mode = 0;  // permission bits
  std::uint32_t owner = 0;
  std::int64_t mtime_ns = 0;
};

enum class Publish {
  kFirstWins,  // link(): an existing file stays, and that is success
  kReplace,    // rename(): the new file takes the name
};

// Held while the object lives. The kernel releases it when the process dies; its file stays.
using FileLock = std::shared_ptr<void>;

class FileSystem {
 public:
  virtual ~FileSystem() = default;
  virtual FileInfo info(const std::string& path) = 0;  // of the link itself, never of its target
  virtual Result<std::string> read(const std::string& path) = 0;
  // The bytes from `offset` on, fewer than `count` only where the file ends before.
  virtual Result<std::string> read_range(const std::string& path, std::uint64_t offset,
                                         std::uint64_t count) = 0;
  // Writes `bytes` to a private file in `temp_dir`, syncs it and gives it the name `path`; on
  // failure nothing is left under `path` that was not there before, and the private file is gone.
  virtual Status publish(const std::string& temp_dir, const std::string& path,
                         std::string_view bytes, Publish how) = 0;
  virtual Status make_directories(const std::string& path) = 0;
  virtual Status rename(const std::string& from, const std::string& to) = 0;
  virtual Status remove(const std::string& path) = 0;  // a file; absent is success
  // A file, or a directory with all that is in it; absent is success. Links are removed, never
  // followed.
  virtual Status remove_tree(const std::string& path) = 0;
  virtual Status touch(const std::string& path, std::int64_t mtime_ns) = 0;
  // Adds to the end of a private file, made where it is absent. Not synced: for what may be lost.
  virtual Status append(const std::string& path, std::string_view bytes) = 0;
  // Of a file, made where it is absent; null when somebody else holds it. A file system that cannot
  // lock is an error.
  virtual Result<FileLock> try_lock(const std::string& path) = 0;
  virtual Result<std::vector<std::string>> list(const std::string& path) = 0;  // names, sorted
};

std::unique_ptr<FileSystem> make_real_file_system();
// Everything in memory, for tests. `fail_after` writes return CACHE_IO once that many bytes were
// written; a negative value never fails.
std::unique_ptr<FileSystem> make_memory_file_system(std::int64_t fail_after_bytes = -1);

}  // namespace attnloom
