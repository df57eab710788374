// SPDX-License-Identifier: Apache-2.0
// Where `attnloom serve` listens: a unix socket or TCP on loopback. Value; pure but for
// clear_socket.
#pragma once

#include <string>

#include "base/status.h"

namespace attnloom::cli {

struct ListenAddress {
  std::string socket;  // of "unix:/path", else ""
  std::string host;
  int port = 0;  // 0: any free one
};

// "unix:/path", "127.0.0.1:PORT", "[::1]:PORT" or "localhost:PORT"; anything else is
// ARGUMENT_INVALID: there is no TLS here, so no other machine may reach it but through a proxy.
Result<ListenAddress> parse_listen(const std::string& text);

// Removes a socket that a service which ended has left behind. CACHE_IO where one still listens or
// the path is something else.
Status clear_socket(const std::string& path);

}  // namespace attnloom::cli
