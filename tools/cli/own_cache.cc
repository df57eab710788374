// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/own_cache.h"

#include <ctime>
#include <iostream>

#include "cache/entry.h"
#include "cache/layout.h"
#include "engine/environment.h"

namespace attnloom::cli {
namespace {

constexpr std::size_t kLeastDigits = 8;
constexpr std::size_t kKeyDigits = 64;

}  // namespace

Result<OwnCache> open_own_cache(const CommonOptions& options) {
  OwnCache cache;
  cache.files = make_real_file_system();
  SettingOptions settings = options.settings;
  settings.look_only = true;
  ATTNLOOM_TRY(cache.settings, resolve_settings(settings, read_environment(), *cache.files));
  const auto warn = [](const std::string& line) { std::cerr << "attnloom: " << line << '\n'; };
  CareOptions care;
  care.max_bytes = cache.settings.cache_max_bytes;
  cache.root = std::make_unique<OwnRoot>(*cache.files, cache.settings.cache_root.value, warn, care);
  if (!cache.root->path().empty()) cache.base = layout::base(cache.root->path());
  return cache;
}

Result<OwnCache> need_own_cache(const CommonOptions& options) {
  ATTNLOOM_TRY(OwnCache cache, open_own_cache(options));
  if (!cache.base.empty()) return cache;
  const std::string& refusal = cache.root->refusal();
  return make_error(Code::kCacheIo, cache.settings.cache_root.origin,
                    refusal.empty()
                        ? "there is no writable cache"
                        : cache.settings.cache_root.value + " cannot be used: " + refusal,
                    "name a directory by --cache-dir");
}

Status check_key_text(const std::string& text) {
  const bool hex = text.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (hex && text.size() >= kLeastDigits && text.size() <= kKeyDigits) return ok_status();
  return make_error(Code::kArgumentInvalid, "", "\"" + text.substr(0, 80) + "\" is no request_key",
                    "give its 64 hexadecimal digits, or at least the first 8");
}

std::set<std::string> keys_of(const std::vector<OwnFile>& entries) {
  std::set<std::string> keys;
  for (const OwnFile& entry : entries) keys.insert(entry.request_key);
  return keys;
}

Result<std::string> key_of(const std::string& text, const std::set<std::string>& known,
                           const std::string& nobody) {
  ATTNLOOM_CHECK(check_key_text(text));
  if (text.size() == kKeyDigits) return text;
  std::vector<std::string> keys;
  for (auto at = known.lower_bound(text); at != known.end() && at->starts_with(text); ++at)
    keys.push_back(*at);
  if (keys.size() == 1) return keys.front();
  if (keys.empty()) {
    return make_error(Code::kNotCached, "", nobody + " a request_key that begins with " + text,
                      "`attnloom cache ls` lists them");
  }
  return make_error(Code::kArgumentInvalid, "",
                    std::to_string(keys.size()) + " request_keys begin with " + text,
                    "give more digits");
}

std::string time_text(std::int64_t ns_since_1970) {
  const std::time_t seconds = static_cast<std::time_t>(ns_since_1970 / 1'000'000'000);
  std::tm parts = {};
  if (::gmtime_r(&seconds, &parts) == nullptr) return "";
  char text[32];
  return std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts) == 0 ? "" : text;
}

}  // namespace attnloom::cli
