// SPDX-License-Identifier: Apache-2.0
// What the subcommands of `attnloom bundle` share. PATH is a cache directory or a bundle.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/files.h"
#include "cache/entry.h"
#include "cache/read_only_place.h"
#include "engine/settings.h"

namespace attnloom::cli {

struct BundleOptions {
  bool json = false;
  SettingOptions settings;            // cache_dir, trust_keys
  std::vector<std::string> paths;     // as given
  std::vector<std::string> from;      // export
  std::vector<std::string> targets;   // export, verify
  std::vector<std::string> describe;  // export: specs
  std::string output;
  std::string key;
  bool ptx = false;
};

Result<int> bundle_export(const BundleOptions& options);
Result<int> bundle_import(const BundleOptions& options);
Result<int> bundle_sign(const BundleOptions& options);
Result<int> bundle_verify(const BundleOptions& options);
Result<int> bundle_diff(const BundleOptions& options);
Result<int> bundle_ls(const BundleOptions& options);

// The settings; makes no directory.
Result<Settings> bundle_settings(const BundleOptions& options, FileSystem& files);
// ARGUMENT_INVALID where there is nothing; the place's own trouble otherwise.
Result<ReadOnlyPlace> open_place(FileSystem& files, const std::string& named);

// NOT_CACHED: a place that holds nothing.
Status no_entries(const std::string& named);

// An entry of a place, whole and under its own name.
struct CheckedEntry {
  StoredEntry stored;
  Entry entry;  // with its PTX
};
// CACHE_CORRUPT or CACHE_IO, with the entry as path.
Result<CheckedEntry> check_entry(const ReadOnlyPlace& place,
                                 const std::pair<std::string, std::string>& name);
// `error` with the entry's name as its path.
Status at_entry(Status error, const ReadOnlyPlace& place,
                const std::pair<std::string, std::string>& name);

}  // namespace attnloom::cli
