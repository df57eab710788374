// SPDX-License-Identifier: Apache-2.0
// Settings: where the cache, the compiler and the locks are, each with its origin. The order is
// option, variable, default. A place that somebody named and that cannot be used is an error, never
// a silent other choice. Values.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/json.h"
#include "base/status.h"
#include "cache/trust.h"
#include "compile/toolchain.h"
#include "engine/environment.h"
#include "engine/remote_settings.h"

namespace attnloom {

// What the caller asks for; an empty string means: not said.
struct SettingOptions {
  std::string cache_dir;
  std::string read_only_caches;  // colon-separated directories and bundles
  std::string trust_keys;        // file of public keys
  std::string cache_max_size;    // "512M", "2G"
  std::string nvrtc;             // library file or its folder
  std::string lock_dir;
  std::string access_log;
  std::optional<bool> jit;
  bool jit_warns = false;  // with jit
  int jobs = 0;            // compiles at a time; 0: not said
  std::string
      python_paths;  // colon-separated site-packages folders, searched before the environment's
  RemoteChoices remote;
  bool look_only = false;  // a writable cache that is named and absent stays so
};

struct Setting {
  std::string value;
  std::string origin;  // "option", "ATTNLOOM_CACHE_DIR", "XDG_CACHE_HOME", "HOME", "default"
  bool named = false;  // by option or ATTNLOOM_ variable: must be usable
};

struct Settings {
  Setting cache_root;  // value may be "": nothing is kept on disk
  std::vector<std::string> read_only;
  std::string read_only_origin;
  Setting trust_keys;
  std::shared_ptr<const TrustedKeys> trusted;  // what trust_keys holds; null where it is not named
  std::uint64_t cache_max_bytes = 0;
  std::string cache_max_origin;
  Setting nvrtc;
  Setting lock_dir;
  Setting access_log;  // value may be "": none is kept
  bool jit = true;
  bool jit_warns = false;
  std::string jit_origin;
  int jobs = 0;  // 0: by cores and free memory
  std::string jobs_origin;
  RemoteSettings remote;
  NvrtcSearch search;  // filled from `nvrtc` and the environment
};

// Errors: ARGUMENT_INVALID or CACHE_IO whose path is the option or variable and whose cause names
// the place.
Result<Settings> resolve_settings(const SettingOptions& options, const Environment& environment,
                                  FileSystem& files);

// The settings with their origins, for describe and `info`.
Json settings_to_json(const Settings& settings);

// The folder of the shared library or program that this code was linked into; "" when unknown.
std::string own_folder();

}  // namespace attnloom
