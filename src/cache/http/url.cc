// SPDX-License-Identifier: Apache-2.0
#include "cache/http/url.h"

#include <charconv>

namespace attnloom::http {
namespace {

constexpr std::size_t kMostUrlBytes = 4096;
constexpr std::size_t kMostSocketBytes = 107;  // of sockaddr_un, with its final zero
constexpr int kHttpPort = 80;
constexpr int kHttpsPort = 443;
constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz";
constexpr std::string_view kDigits = "0123456789";

bool consists_of(std::string_view text, std::string_view a, std::string_view b,
                 std::string_view c = {}) {
  for (const char letter : text) {
    if (a.find(letter) == std::string_view::npos && b.find(letter) == std::string_view::npos &&
        c.find(letter) == std::string_view::npos)
      return false;
  }
  return true;
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& letter : out)
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  return out;
}

bool is_host(std::string_view host) {
  if (host.size() > 2 && host.front() == '[' && host.back() == ']')
    return consists_of(host.substr(1, host.size() - 2), "abcdef:.", kDigits);
  return !host.empty() && consists_of(host, kLetters, kDigits, ".-");
}

bool is_path(std::string_view path, bool query) {
  for (const char letter : path) {
    if (letter <= ' ' || letter >= 127) return false;
    if (std::string_view("\"<>\\^`{|}#").find(letter) != std::string_view::npos) return false;
    if (letter == '?' && !query) return false;
  }
  return true;
}

Status refuse(const std::string& why) {
  return make_error(Code::kArgumentInvalid, "", why,
                    "write it as http://HOST[:PORT][/PATH] or https://...");
}

// host[:port]; everything before the path.
Status read_authority(std::string_view text, Url& url) {
  std::size_t colon = text.rfind(':');
  // Colons inside of [...] belong to the address.
  if (colon != std::string_view::npos && text.find(']', colon) != std::string_view::npos)
    colon = std::string_view::npos;
  url.host = lower(text.substr(0, colon));
  url.port = url.tls ? kHttpsPort : kHttpPort;
  if (!is_host(url.host)) return refuse("it names no host");
  if (colon == std::string_view::npos) return ok_status();
  const std::string_view digits = text.substr(colon + 1);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), url.port);
  if (error != std::errc{} || end != digits.data() + digits.size() || url.port < 1 ||
      url.port > 65535)
    return refuse("its port is no number from 1 to 65535");
  return ok_status();
}

Result<Url> read(std::string_view text, bool query) {
  // Before anything is repeated: what stands before '@' may be a password.
  if (text.find('@') != std::string_view::npos) {
    return make_error(Code::kArgumentInvalid, "", "the address holds '@'",
                      "credentials do not belong into an address: name a file that holds a token");
  }
  if (text.size() > kMostUrlBytes) return refuse("the address is longer than 4096 bytes");
  Url url;
  if (text.starts_with("https://"))
    url.tls = true;
  else if (!text.starts_with("http://"))
    return refuse("it begins neither with http:// nor with https://");
  text.remove_prefix(url.tls ? 8 : 7);
  const std::size_t end = text.find_first_of("/?#");
  ATTNLOOM_CHECK(read_authority(text.substr(0, end), url));
  if (end != std::string_view::npos) url.path = text.substr(end);
  if (!url.path.empty() && url.path[0] != '/') url.path.insert(url.path.begin(), '/');
  if (!is_path(url.path, query)) return refuse("its path holds a character that no path has");
  return url;
}

}  // namespace

std::string Url::text() const {
  if (!socket.empty()) return "unix:" + socket + path;
  const bool usual = port == (tls ? kHttpsPort : kHttpPort);
  return (tls ? "https://" : "http://") + host + (usual ? "" : ":" + std::to_string(port)) + path;
}

Result<Url> parse_base_url(std::string_view text) {
  ATTNLOOM_TRY(Url url, read(text, false));
  while (url.path.ends_with('/')) url.path.pop_back();
  return url;
}

Result<Url> parse_service_url(std::string_view text) {
  if (!text.starts_with("unix:")) return parse_base_url(text);
  Url url;
  url.host = "localhost";
  url.port = kHttpPort;
  url.socket = text.substr(5);
  if (url.socket.empty() || url.socket[0] != '/' || url.socket.size() > kMostSocketBytes ||
      url.socket.find('\0') != std::string::npos)
    return make_error(Code::kArgumentInvalid, "",
                      "a unix: address needs an absolute path of at most 107 bytes",
                      "write it as unix:/run/attnloom.sock");
  return url;
}

Result<Url> parse_redirect(const Url& from, std::string_view text) {
  ATTNLOOM_TRY(Url url, read(text, true));
  if (from.tls && !url.tls)
    return make_error(Code::kArgumentInvalid, "", "it leads from https to http");
  return url;
}

bool same_server(const Url& a, const Url& b) {
  return a.tls == b.tls && a.host == b.host && a.port == b.port && a.socket == b.socket;
}

}  // namespace attnloom::http
