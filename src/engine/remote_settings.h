// SPDX-License-Identifier: Apache-2.0
// What is said about servers: the HTTP cache, the compile service, the token for both, and who
// vouches for what they give. Values.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/json.h"
#include "base/status.h"
#include "cache/remote.h"
#include "cache/trust.h"
#include "engine/environment.h"

namespace attnloom {

// What the caller asks for; empty means: not said.
struct RemoteChoices {
  std::string remote;       // address of an HTTP cache
  std::string compile_url;  // address of a service
  std::string token_file;
  std::string sign_key;  // file of a private key
  std::optional<bool> write;
  std::optional<bool> unsigned_entries;
  std::optional<bool> offline;
  bool no_service = false;  // compile_url is not looked at: a service compiles itself
};

struct RemoteSettings {
  std::optional<RemoteOptions> remote;         // none: not named, or offline
  std::optional<http::ClientOptions> service;  // the same
  bool unsigned_entries = false;
  std::optional<SigningKey> signing_key;
  Json shown = Json::object();  // with the origins; holds no secret
};

// `keys` judge what the servers give; null where there are none. Errors name option or variable:
// ARGUMENT_INVALID, CACHE_IO for a file that cannot be used, UNTRUSTED where neither keys nor the
// user's word vouch for a server.
Result<RemoteSettings> resolve_remote(const RemoteChoices& choices, const Environment& environment,
                                      const std::shared_ptr<const TrustedKeys>& keys);

}  // namespace attnloom
