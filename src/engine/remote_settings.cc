// SPDX-License-Identifier: Apache-2.0
#include "engine/remote_settings.h"

#include <utility>

#include "cache/http/token.h"
#include "cache/http/url.h"

namespace attnloom {
namespace {

constexpr std::size_t kMostKeyBytes = 64 << 10;
// A service answers when the kernel is compiled, which may have to wait for others.
constexpr std::chrono::seconds kServiceTime{60};

struct Named {
  std::string value;
  std::string origin;  // "" when nobody said it
};

Named named(const std::string& option, const char* option_name, const Environment& environment,
            const char* variable) {
  if (!option.empty()) return {option, std::string("option ") + option_name};
  const std::string value = environment.get(variable);
  return {value, value.empty() ? "" : variable};
}

struct Switch {
  bool on = false;
  std::string origin = "default";
};

Result<Switch> switched(const std::optional<bool>& option, const char* option_name,
                        const Environment& environment, const char* variable) {
  if (option) return Switch{*option, std::string("option ") + option_name};
  const std::string value = environment.get(variable);
  if (value.empty()) return Switch{};
  if (value == "0" || value == "1") return Switch{value == "1", variable};
  return make_error(Code::kArgumentInvalid, variable, "must be 0 or 1, given " + value);
}

Json shown(const Switch& item) {
  return {{"value", item.on}, {"origin", item.origin}};
}
Json shown(const Named& item, const char* name) {
  return {{name, item.value}, {"origin", item.origin.empty() ? "default" : item.origin}};
}

// The error of a reader that does not know who named the place.
Status at(const std::string& origin, Status error) {
  error.path = origin;
  return error;
}

Status without_trust(const std::string& origin) {
  return make_error(Code::kUntrusted, origin, "nothing vouches for the entries of that server",
                    "name the keys that sign them by trust_keys (ATTNLOOM_TRUST_KEYS), or trust "
                    "server and network by ATTNLOOM_REMOTE_UNSIGNED=1");
}

struct Files {
  std::string token;
  std::optional<SigningKey> signing_key;
};

Result<Files> read_files(const Named& token_file, const Named& sign_key) {
  Files files;
  if (!token_file.value.empty()) {
    Result<std::string> token = http::read_token(token_file.value);
    if (!token.ok()) return at(token_file.origin, token.status());
    files.token = std::move(token).value();
  }
  if (!sign_key.value.empty()) {
    const Result<std::string> pem = http::read_private_file(sign_key.value, kMostKeyBytes);
    if (!pem.ok()) return at(sign_key.origin, pem.status());
    ATTNLOOM_TRY(files.signing_key, SigningKey::parse(*pem, sign_key.origin));
  }
  return files;
}

}  // namespace

Result<RemoteSettings> resolve_remote(const RemoteChoices& choices, const Environment& environment,
                                      const std::shared_ptr<const TrustedKeys>& keys) {
  const Named remote = named(choices.remote, "remote", environment, "ATTNLOOM_REMOTE");
  const Named service =
      named(choices.compile_url, "compile_url", environment, "ATTNLOOM_COMPILE_URL");
  const Named token =
      named(choices.token_file, "remote_token_file", environment, "ATTNLOOM_REMOTE_TOKEN_FILE");
  const Named key = named(choices.sign_key, "sign_key", environment, "ATTNLOOM_SIGN_KEY");
  ATTNLOOM_TRY(const Switch write,
               switched(choices.write, "remote_write", environment, "ATTNLOOM_REMOTE_WRITE"));
  ATTNLOOM_TRY(const Switch trusting, switched(choices.unsigned_entries, "remote_unsigned",
                                               environment, "ATTNLOOM_REMOTE_UNSIGNED"));
  ATTNLOOM_TRY(const Switch offline,
               switched(choices.offline, "offline", environment, "ATTNLOOM_OFFLINE"));
  RemoteSettings settings;
  settings.unsigned_entries = trusting.on;
  settings.shown = {
      {"remote", shown(remote, "url")},     {"remote_write", shown(write)},
      {"remote_unsigned", shown(trusting)}, {"remote_token_file", shown(token, "path")},
      {"sign_key", shown(key, "path")},     {"compile_url", shown(service, "url")},
      {"offline", shown(offline)}};
  // Read even where it is not used: an address with a password must be shown nowhere.
  const Result<http::Url> remote_url =
      remote.value.empty() ? http::Url() : http::parse_base_url(remote.value);
  if (!remote_url.ok()) return at(remote.origin, remote_url.status());
  const Result<http::Url> service_url =
      service.value.empty() ? http::Url() : http::parse_service_url(service.value);
  if (!service_url.ok()) return at(service.origin, service_url.status());
  if (offline.on) return settings;
  ATTNLOOM_TRY(const Files files, read_files(token, key));
  if (!remote.value.empty()) {
    if (!keys && !trusting.on) return without_trust(remote.origin);
    settings.remote = RemoteOptions{.client = {.server = remote_url.value(), .token = files.token},
                                    .write = write.on,
                                    .unsigned_entries = trusting.on,
                                    .keys = keys,
                                    .signing_key = files.signing_key};
  }
  if (!service.value.empty()) {
    if (!keys && !trusting.on) return without_trust(service.origin);
    settings.service = http::ClientOptions{
        .server = service_url.value(), .token = files.token, .total_time = kServiceTime};
  }
  return settings;
}

}  // namespace attnloom
