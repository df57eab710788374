// SPDX-License-Identifier: Apache-2.0
// A cache entry is code that will run on the GPU with this process's data, so nobody else may be
// able to write one. Thread-safe.
#pragma once

#include <string>

#include "base/files.h"

namespace attnloom {

// Why the directory `path` (absolute; it may be absent yet) must not be trusted, or "". Required of
// it and of every directory above it: owned by this user or by root, no write bit for group or
// others (above it the sticky bit, as on /tmp, makes up for that), and the directory itself is not
// a symbolic link.
std::string refuse_root(FileSystem& files, const std::string& path);

// The same for a read-only directory or a bundle file that somebody named, which may be a link if
// the link and what it leads to pass.
std::string refuse_place(FileSystem& files, const std::string& path);

// The same for one entry or directory below the root.
std::string refuse_file(const FileInfo& info);

// Absolute, without dots and without a slash at the end; touches no disk.
std::string normal_path(const std::string& path);

}  // namespace attnloom
