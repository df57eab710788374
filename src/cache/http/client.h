// SPDX-License-Identifier: Apache-2.0
// HttpClient: bounded requests to one server: time-outs, a largest answer, few redirects, and a
// bearer token that no other server ever sees. Certificates are verified; proxies, cookies and
// netrc of the user are not looked at.
//
// Thread-safe. Connections are kept and reused; a child process after fork opens its own.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "cache/http/breaker.h"
#include "cache/http/url.h"

namespace attnloom::http {

struct ClientOptions {
  Url server;
  std::string token;  // "" = none; appears in no error
  std::chrono::milliseconds connect_time{200};
  std::chrono::milliseconds total_time{2'000};  // of a request with its redirects
  Clock clock;                                  // of the pause; empty: the steady clock
};

enum class Method { kGet, kHead, kPut, kPost };

struct Request {
  Method method = Method::kGet;
  std::string path;              // below the server's own, begins with '/'
  std::string accept;            // "" = anything
  std::string content_type;      // of the body
  std::string_view body = {};    // kPut, kPost
  std::uint64_t most_bytes = 0;  // of the answer; more is an error
};

struct Response {
  int status = 0;
  std::string body;
  std::optional<std::uint64_t> content_length;  // as the server says it
  std::string signature;                        // the header Attnloom-Signature
};

class HttpClient {
 public:
  explicit HttpClient(ClientOptions options);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // Any status but 5xx, 408 and 429 is an answer. REMOTE otherwise, also while the server is
  // paused; the cause names server and reason and is the same text for the same trouble.
  Result<Response> send(const Request& request);
  const Url& server() const;
  bool paused() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace attnloom::http
