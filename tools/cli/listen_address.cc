// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/listen_address.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>

#include "cache/http/url.h"

namespace attnloom::cli {
namespace {

Status refuse(const std::string& cause) {
  return make_error(Code::kArgumentInvalid, "--listen", cause,
                    "name unix:/path, or 127.0.0.1:PORT behind a proxy of your own");
}

Status unusable(const std::string& path, const std::string& why) {
  return make_error(Code::kCacheIo, "--listen", path + ": " + why);
}

bool somebody_listens(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
  const int peer = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (peer < 0) return true;
  const int failed = ::connect(peer, reinterpret_cast<sockaddr*>(&address), sizeof(address));
  const bool refused = failed != 0 && errno == ECONNREFUSED;
  ::close(peer);
  return !refused;
}

}  // namespace

Result<ListenAddress> parse_listen(const std::string& text) {
  ListenAddress address;
  if (text.starts_with("unix:")) {
    const Result<http::Url> url = http::parse_service_url(text);
    if (!url.ok()) return refuse(url.status().cause);
    address.socket = url->socket;
    return address;
  }
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos) return refuse("no port in " + text);
  address.host = text.substr(0, colon);
  const char* end = text.data() + text.size();
  const auto [next, error] = std::from_chars(text.data() + colon + 1, end, address.port);
  if (error != std::errc{} || next != end || address.port < 0 || address.port > 65535)
    return refuse("no port from 0 to 65535 in " + text);
  if (address.host == "[::1]") address.host = "::1";
  if (address.host == "127.0.0.1" || address.host == "::1" || address.host == "localhost")
    return address;
  return refuse(address.host + " is not this machine's loopback");
}

Status clear_socket(const std::string& path) {
  struct stat info = {};
  if (::lstat(path.c_str(), &info) != 0)
    return errno == ENOENT ? ok_status() : unusable(path, std::strerror(errno));
  if (!S_ISSOCK(info.st_mode)) return unusable(path, "it is there and no socket");
  if (somebody_listens(path)) return unusable(path, "another service listens on it");
  if (::unlink(path.c_str()) != 0) return unusable(path, std::strerror(errno));
  return ok_status();
}

}  // namespace attnloom::cli
