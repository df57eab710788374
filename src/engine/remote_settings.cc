// SPDX-License-Identifier: Apache-2.0
#include "engine/remote_settings.h"

#include <string_view>
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

// Everything that was said, as it was said.
struct Said {
  Named remote, service, token_file, sign_key;
  Switch write, trusting, offline;
};

Result<Said> read_said(const RemoteChoices& choices, const Environment& variables) {
  Said said;
  said.remote = named(choices.remote, "remote", variables, "ATTNLOOM_REMOTE");
  if (!choices.no_service)
    said.service = named(choices.compile_url, "compile_url", variables, "ATTNLOOM_COMPILE_URL");
  said.token_file =
      named(choices.token_file, "remote_token_file", variables, "ATTNLOOM_REMOTE_TOKEN_FILE");
  said.sign_key = named(choices.sign_key, "sign_key", variables, "ATTNLOOM_SIGN_KEY");
  ATTNLOOM_TRY(said.write,
               switched(choices.write, "remote_write", variables, "ATTNLOOM_REMOTE_WRITE"));
  ATTNLOOM_TRY(said.trusting, switched(choices.unsigned_entries, "remote_unsigned", variables,
                                       "ATTNLOOM_REMOTE_UNSIGNED"));
  ATTNLOOM_TRY(said.offline, switched(choices.offline, "offline", variables, "ATTNLOOM_OFFLINE"));
  return said;
}

Json shown(const Said& said) {
  return {{"remote", shown(said.remote, "url")},
          {"remote_write", shown(said.write)},
          {"remote_unsigned", shown(said.trusting)},
          {"remote_token_file", shown(said.token_file, "path")},
          {"sign_key", shown(said.sign_key, "path")},
          {"compile_url", shown(said.service, "url")},
          {"offline", shown(said.offline)}};
}

using ReadUrl = Result<http::Url> (*)(std::string_view);

Result<http::Url> read_url(const Named& said, ReadUrl read) {
  if (said.value.empty()) return http::Url();
  Result<http::Url> url = read(said.value);
  return url.ok() ? url : at(said.origin, url.status());
}

Result<std::optional<SigningKey>> read_key(const Named& sign_key) {
  if (sign_key.value.empty()) return std::optional<SigningKey>();
  const Result<std::string> pem = http::read_private_file(sign_key.value, kMostKeyBytes);
  if (!pem.ok()) return at(sign_key.origin, pem.status());
  ATTNLOOM_TRY(SigningKey key, SigningKey::parse(*pem, sign_key.origin));
  return std::optional<SigningKey>(std::move(key));
}

}  // namespace

Result<RemoteSettings> resolve_remote(const RemoteChoices& choices, const Environment& environment,
                                      const std::shared_ptr<const TrustedKeys>& keys) {
  ATTNLOOM_TRY(const Said said, read_said(choices, environment));
  RemoteSettings settings;
  settings.unsigned_entries = said.trusting.on;
  settings.shown = shown(said);
  // Read even where it is not used: an address with a password must be shown nowhere.
  ATTNLOOM_TRY(const http::Url remote, read_url(said.remote, http::parse_base_url));
  ATTNLOOM_TRY(const http::Url service, read_url(said.service, http::parse_service_url));
  ATTNLOOM_TRY(settings.signing_key, read_key(said.sign_key));
  if (said.offline.on) return settings;
  std::string token;
  if (!said.token_file.value.empty()) {
    Result<std::string> read = http::read_token(said.token_file.value);
    if (!read.ok()) return at(said.token_file.origin, read.status());
    token = std::move(read).value();
  }
  for (const Named* named : {&said.remote, &said.service})
    if (!named->value.empty() && !keys && !said.trusting.on) return without_trust(named->origin);
  if (!said.remote.value.empty()) {
    settings.remote = RemoteOptions{.client = {.server = remote, .token = token},
                                    .write = said.write.on,
                                    .unsigned_entries = said.trusting.on,
                                    .keys = keys,
                                    .signing_key = settings.signing_key};
  }
  if (!said.service.value.empty())
    settings.service =
        http::ClientOptions{.server = service, .token = token, .total_time = kServiceTime};
  return settings;
}

}  // namespace attnloom
