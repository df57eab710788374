// SPDX-License-Identifier: Apache-2.0
// What `cache` and `inspect` share: the writable cache as the settings name it, and keys as people
// type them.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/status.h"
#include "cache/own_files.h"
#include "cache/own_root.h"
#include "engine/settings.h"
#include "tools/cli/session.h"

namespace attnloom::cli {

struct OwnCache {
  std::unique_ptr<FileSystem> files;
  Settings settings;
  std::unique_ptr<OwnRoot> root;  // its path may be "": refused, or none
  std::string base;               // <root>/v1, "" without one
};

// Makes no file or directory. Errors: those of resolve_settings.
Result<OwnCache> open_own_cache(const CommonOptions& options);
// The same, and CACHE_IO where there is no writable cache.
Result<OwnCache> need_own_cache(const CommonOptions& options);

// At least eight digits of a request_key, and no more than it has. ARGUMENT_INVALID otherwise.
Status check_key_text(const std::string& text);
// The request_key that begins with `text`: the one key among `known`, or `text` itself where it is
// whole. ARGUMENT_INVALID when several begin so; NOT_CACHED with `nobody`, such as "no entry has",
// when none does.
Result<std::string> key_of(const std::string& text, const std::set<std::string>& known,
                           const std::string& nobody = "no entry has");
std::set<std::string> keys_of(const std::vector<OwnFile>& entries);

// "2026-11-30T09:50:25Z"
std::string time_text(std::int64_t ns_since_1970);

}  // namespace attnloom::cli
