// SPDX-License-Identifier: Apache-2.0
#include "engine/settings.h"

#include <dlfcn.h>
#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <system_error>

#include "base/byte_size.h"
#include "cache/pinned_path.h"
#include "cache/root_check.h"
#include "cache/store.h"

namespace attnloom {
namespace {

std::vector<std::string> split_paths(const std::string& text) {
  std::vector<std::string> paths;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    std::size_t end = text.find(':', begin);
    if (end == std::string::npos) end = text.size();
    if (end > begin) paths.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return paths;
}

// Option, else variable, else nothing.
Setting named_setting(const std::string& option, const char* option_name,
                      const Environment& environment, const char* variable) {
  if (!option.empty()) return {option, std::string("option ") + option_name, true};
  const std::string value = environment.get(variable);
  if (!value.empty()) return {value, variable, true};
  return {};
}

Status unusable(const Setting& setting, const std::string& why, Code code = Code::kCacheIo) {
  return make_error(code, setting.origin, setting.value + " cannot be used: " + why,
                    "name another place, or leave it out to use the default");
}

Result<Setting> resolve_cache_root(const SettingOptions& options, const Environment& environment,
                                   FileSystem& files) {
  Setting root = named_setting(options.cache_dir, "cache_dir", environment, "ATTNLOOM_CACHE_DIR");
  if (root.named) {
    if (options.look_only && !files.info(root.value).exists) return root;
    if (const Status made = files.make_directories(root.value); !made.ok())
      return unusable(root, made.cause);
    return root;
  }
  const std::string xdg = environment.get("XDG_CACHE_HOME");
  root.value = default_cache_root("", xdg, environment.get("HOME"));
  const bool from_xdg = root.value == default_cache_root("", xdg, "");  // not where it is relative
  root.origin = root.value.empty() ? "no absolute XDG_CACHE_HOME or HOME"
                : from_xdg         ? "XDG_CACHE_HOME"
                                   : "HOME";
  return root;
}

Status resolve_read_only(const SettingOptions& options, const Environment& environment,
                         FileSystem& files, Settings& settings) {
  const Setting named =
      named_setting(options.read_only_caches, "read_only_caches", environment, "ATTNLOOM_CACHE_RO");
  settings.read_only = split_paths(named.value);
  settings.read_only_origin = named.named ? named.origin : "default";
  for (const std::string& text : settings.read_only) {
    const Result<PinnedPath> place = parse_pinned_path(text);
    if (!place.ok())
      return unusable({text, named.origin, true}, place.status().cause, Code::kArgumentInvalid);
    const FileInfo info = files.info(place->path);
    if (!info.exists) return unusable({text, named.origin, true}, "it does not exist");
    if (info.is_directory && !place->sha256.empty())
      return unusable({text, named.origin, true}, "a digest pins a bundle, not a directory");
    if (!info.is_directory && !info.is_symlink && !info.is_regular)
      return unusable({text, named.origin, true}, "it is neither a directory nor a bundle");
  }
  return ok_status();
}

// Who can write the key file decides what runs, so it is held to the rule of the cache itself.
Status resolve_trust_keys(const SettingOptions& options, const Environment& environment,
                          FileSystem& files, Settings& settings) {
  Setting& named = settings.trust_keys;
  named = named_setting(options.trust_keys, "trust_keys", environment, "ATTNLOOM_TRUST_KEYS");
  if (!named.named) {
    named.origin = "default";
    return ok_status();
  }
  if (const std::string reason = refuse_place(files, named.value); !reason.empty())
    return unusable(named, reason, Code::kUntrusted);
  // Secrets of an orchestrator are mounted as links.
  std::error_code absent;
  const std::string path = std::filesystem::canonical(named.value, absent).string();
  const Result<std::string> text = files.read(absent ? named.value : path);
  if (!text.ok()) return unusable(named, text.status().cause);
  Result<TrustedKeys> keys = TrustedKeys::parse(*text, named.origin);
  if (!keys.ok()) return unusable(named, keys.status().cause, Code::kArgumentInvalid);
  settings.trusted = std::make_shared<const TrustedKeys>(std::move(keys).value());
  return ok_status();
}

Status resolve_cache_size(const SettingOptions& options, const Environment& environment,
                          Settings& settings) {
  const Setting named = named_setting(options.cache_max_size, "cache_max_size", environment,
                                      "ATTNLOOM_CACHE_MAX_SIZE");
  settings.cache_max_bytes = kDefaultCacheBytes;
  settings.cache_max_origin = named.named ? named.origin : "default";
  if (!named.named) return ok_status();
  const std::optional<std::uint64_t> bytes = parse_byte_size(named.value);
  if (!bytes || *bytes < kLeastCacheBytes) {
    return make_error(Code::kArgumentInvalid, named.origin,
                      "must be a size of at least 64M, such as 512M or 2G; given " + named.value);
  }
  settings.cache_max_bytes = *bytes;
  return ok_status();
}

Result<Setting> resolve_nvrtc(const SettingOptions& options, const Environment& environment,
                              FileSystem& files) {
  Setting nvrtc = named_setting(options.nvrtc, "nvrtc", environment, "ATTNLOOM_NVRTC");
  if (nvrtc.named && !files.info(nvrtc.value).exists)
    return unusable(nvrtc, "it does not exist", Code::kArgumentInvalid);
  if (!nvrtc.named) nvrtc.origin = "search";
  return nvrtc;
}

// Locks live on the node, never on the cache's file system: a shared one may lock in ways of its
// own, or not at all.
Result<Setting> resolve_lock_dir(const SettingOptions& options, const Environment& environment,
                                 FileSystem& files) {
  Setting locks = named_setting(options.lock_dir, "lock_dir", environment, "ATTNLOOM_LOCK_DIR");
  if (locks.named) {
    if (const Status made = files.make_directories(locks.value); !made.ok())
      return unusable(locks, made.cause);
    return locks;
  }
  const std::string runtime = environment.get("XDG_RUNTIME_DIR");
  // As with XDG_CACHE_HOME, relative values are ignored.
  if (runtime.starts_with('/')) return Setting{runtime + "/attnloom", "XDG_RUNTIME_DIR", false};
  if (files.info("/dev/shm").exists)
    return Setting{"/dev/shm/attnloom-" + std::to_string(getuid()), "default", false};
  return Setting{"", "no XDG_RUNTIME_DIR and no /dev/shm", false};
}

Status resolve_jit(const SettingOptions& options, const Environment& environment,
                   Settings& settings) {
  const std::string value = environment.get("ATTNLOOM_JIT");
  if (options.jit) {
    settings.jit = *options.jit;
    settings.jit_warns = options.jit_warns;
    settings.jit_origin = "option jit";
    return ok_status();
  }
  settings.jit_origin = value.empty() ? "default" : "ATTNLOOM_JIT";
  if (!value.empty() && value != "allow" && value != "warn" && value != "never")
    return make_error(Code::kArgumentInvalid, "ATTNLOOM_JIT",
                      "must be allow, warn or never, given " + value);
  settings.jit = value != "never";
  settings.jit_warns = value == "warn";
  return ok_status();
}

Status resolve_jobs(const SettingOptions& options, const Environment& environment,
                    Settings& settings) {
  constexpr int kMostJobs = 256;
  const std::string value = environment.get("ATTNLOOM_JOBS");
  settings.jobs = options.jobs;
  settings.jobs_origin = options.jobs != 0 ? "option jobs" : value.empty() ? "default" : "";
  if (!settings.jobs_origin.empty()) return ok_status();
  settings.jobs_origin = "ATTNLOOM_JOBS";
  const char* end = value.data() + value.size();
  const auto [next, error] = std::from_chars(value.data(), end, settings.jobs);
  if (error == std::errc{} && next == end && settings.jobs >= 1 && settings.jobs <= kMostJobs)
    return ok_status();
  return make_error(
      Code::kArgumentInvalid, "ATTNLOOM_JOBS",
      "must be a whole number from 1 to " + std::to_string(kMostJobs) + ", given " + value);
}

std::vector<std::string> python_paths(const SettingOptions& options, const Environment& environment,
                                      FileSystem& files) {
  std::vector<std::string> paths = split_paths(options.python_paths);
  for (std::string& path : split_paths(environment.get("PYTHONPATH")))
    paths.push_back(std::move(path));
  const std::string virtual_env = environment.get("VIRTUAL_ENV");
  if (virtual_env.empty()) return paths;
  const Result<std::vector<std::string>> versions = files.list(virtual_env + "/lib");
  if (!versions.ok()) return paths;
  for (const std::string& version : versions.value())
    if (version.starts_with("python3"))
      paths.push_back(virtual_env + "/lib/" + version + "/site-packages");
  return paths;
}

Json setting_json(const Setting& setting) {
  return {{"path", setting.value}, {"origin", setting.origin}};
}

Json trust_json(const Settings& settings) {
  Json json = setting_json(settings.trust_keys);
  json["key_ids"] = settings.trusted ? settings.trusted->key_ids() : std::vector<std::string>();
  return json;
}

}  // namespace

Result<Settings> resolve_settings(const SettingOptions& options, const Environment& environment,
                                  FileSystem& files) {
  Settings settings;
  ATTNLOOM_CHECK(resolve_jit(options, environment, settings));
  ATTNLOOM_CHECK(resolve_jobs(options, environment, settings));
  ATTNLOOM_TRY(settings.cache_root, resolve_cache_root(options, environment, files));
  ATTNLOOM_CHECK(resolve_read_only(options, environment, files, settings));
  ATTNLOOM_CHECK(resolve_trust_keys(options, environment, files, settings));
  ATTNLOOM_CHECK(resolve_cache_size(options, environment, settings));
  ATTNLOOM_TRY(settings.nvrtc, resolve_nvrtc(options, environment, files));
  ATTNLOOM_TRY(settings.lock_dir, resolve_lock_dir(options, environment, files));
  settings.access_log =
      named_setting(options.access_log, "access_log", environment, "ATTNLOOM_ACCESS_LOG");
  if (!settings.access_log.named) settings.access_log.origin = "default";
  ATTNLOOM_TRY(settings.remote, resolve_remote(options.remote, environment, settings.trusted));
  settings.search.path = settings.nvrtc.value;
  settings.search.cuda_home = environment.get("CUDA_HOME");
  settings.search.python_paths = python_paths(options, environment, files);
  settings.search.beside = own_folder();
  return settings;
}

Json settings_to_json(const Settings& settings) {
  Json json = {
      {"cache", setting_json(settings.cache_root)},
      {"read_only_caches", {{"paths", settings.read_only}, {"origin", settings.read_only_origin}}},
      {"trust_keys", trust_json(settings)},
      {"cache_max_bytes",
       {{"value", settings.cache_max_bytes}, {"origin", settings.cache_max_origin}}},
      {"nvrtc", setting_json(settings.nvrtc)},
      {"lock_dir", setting_json(settings.lock_dir)},
      {"access_log", setting_json(settings.access_log)},
      {"jit",
       {{"value", !settings.jit        ? "never"
                  : settings.jit_warns ? "warn"
                                       : "allow"},
        {"origin", settings.jit_origin}}},
      {"jobs",
       {{"value", settings.jobs == 0 ? Json("automatic") : Json(settings.jobs)},
        {"origin", settings.jobs_origin}}},
  };
  json.update(settings.remote.shown);
  return json;
}

std::string own_folder() {
  Dl_info info = {};
  if (!dladdr(reinterpret_cast<void*>(&own_folder), &info) || !info.dli_fname) return {};
  const std::string file = info.dli_fname;
  const std::size_t slash = file.rfind('/');
  return slash == std::string::npos ? std::string() : file.substr(0, slash);
}

}  // namespace attnloom
