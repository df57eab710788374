// SPDX-License-Identifier: Apache-2.0
// The addresses that this library talks to. Read strictly, so that no other reader (libcurl's) can
// see another host in the same text: what is not plainly scheme, host, port and path is refused.
// Pure; thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace attnloom::http {

struct Url {
  bool tls = false;
  std::string host;  // lower case; an IPv6 address keeps its brackets
  int port = 0;
  std::string path;    // "" or begins with '/'; a redirect's may hold a query
  std::string socket;  // of a "unix:" address; then host is "localhost"
  bool operator==(const Url&) const = default;

  std::string text() const;  // holds no secret: an address with credentials is refused
};

// "http://host[:port][/path]" or https, no query; a trailing '/' is dropped. ARGUMENT_INVALID, and
// the cause repeats the text only where it cannot hold a password.
Result<Url> parse_base_url(std::string_view text);
// The same, or "unix:/absolute/path" of a socket.
Result<Url> parse_service_url(std::string_view text);
// Where `from` sends us: absolute, a query is allowed, never from https to http.
Result<Url> parse_redirect(const Url& from, std::string_view text);

bool same_server(const Url& a, const Url& b);  // scheme, host and port

}  // namespace attnloom::http
