// SPDX-License-Identifier: Apache-2.0
#include "cache/http/client.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <mutex>
#include <utility>
#include <vector>

#include "cache/http/answer_head.h"
#include "cache/http/curl_library.h"

namespace attnloom::http {
namespace {

using Steady = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kMostRedirects = 3;
constexpr std::size_t kMostHeadBytes = 64 << 10;

// What libcurl's callbacks fill in.
struct Answer {
  std::uint64_t most_bytes = 0;
  std::size_t head_bytes = 0;
  bool too_long = false;
  Response response;
};

// Exceptions must not cross libcurl's C frames; no memory for the answer is an answer too long.
std::size_t take_body(const char* data, std::size_t size, std::size_t count, void* user) noexcept {
  auto& answer = *static_cast<Answer*>(user);
  const std::size_t bytes = size * count;
  try {
    if (bytes <= answer.most_bytes - answer.response.body.size()) {
      answer.response.body.append(data, bytes);
      return bytes;
    }
  } catch (const std::exception&) {
  }
  answer.too_long = true;
  return bytes == 0 ? 1 : 0;  // differs from what was given: libcurl stops
}

std::size_t take_head(const char* data, std::size_t size, std::size_t count, void* user) noexcept {
  auto& answer = *static_cast<Answer*>(user);
  const std::size_t bytes = size * count;
  answer.head_bytes += bytes;
  try {
    if (answer.head_bytes <= kMostHeadBytes) {
      read_head_line({data, bytes}, answer.response.content_length, answer.response.signature);
      return bytes;
    }
  } catch (const std::exception&) {
  }
  answer.too_long = true;
  return bytes == 0 ? 1 : 0;
}

class HeaderList {
 public:
  explicit HeaderList(const CurlLibrary& curl) : curl_(curl) {}
  ~HeaderList() { curl_.slist_free_all(list_); }
  HeaderList(const HeaderList&) = delete;
  HeaderList& operator=(const HeaderList&) = delete;
  void add(const std::string& line) {
    if (curl_slist* longer = curl_.slist_append(list_, line.c_str())) list_ = longer;
  }
  curl_slist* get() const { return list_; }

 private:
  const CurlLibrary& curl_;
  curl_slist* list_ = nullptr;
};

bool is_redirect(int status) {
  constexpr std::array kStatuses = {301, 302, 303, 307, 308};
  return std::find(kStatuses.begin(), kStatuses.end(), status) != kStatuses.end();
}

// The server's own trouble, as opposed to an answer about this request.
bool is_trouble(int status) {
  return status >= 500 || status == 408 || status == 429;
}

}  // namespace

struct HttpClient::State {
  explicit State(ClientOptions given) : options(std::move(given)), breaker(options.clock) {}
  ~State() {
    if (idle_owner != ::getpid()) return;  // the parent's connections
    for (CURL* handle : idle) library.load()->easy_cleanup(handle);
  }

  CURL* take_handle();
  void put_back(CURL* handle);
  Result<Response> perform(const Request& request, const Url& url, milliseconds left, bool trusted,
                           std::string& next);
  Result<Response> follow(const Request& request);
  Status trouble(const std::string& why) const {
    return make_error(Code::kRemote, "", options.server.text() + ": " + why);
  }

  const ClientOptions options;
  Breaker breaker;
  std::atomic<const CurlLibrary*> library{nullptr};  // set by the first request
  std::mutex mutex;
  std::vector<CURL*> idle;
  pid_t idle_owner = ::getpid();
};

// A connection that a forked child shares with its parent must not be used by both; closing it
// would end the parent's session, so the child forgets it.
CURL* HttpClient::State::take_handle() {
  const std::scoped_lock lock(mutex);
  if (idle_owner != ::getpid()) {
    idle.clear();
    idle_owner = ::getpid();
  }
  if (idle.empty()) return library.load()->easy_init();
  CURL* handle = idle.back();
  idle.pop_back();
  return handle;
}

void HttpClient::State::put_back(CURL* handle) {
  library.load()->easy_reset(handle);  // keeps connections, forgets pointers into this stack
  const std::scoped_lock lock(mutex);
  idle.push_back(handle);
}

namespace {

void set_body(const CurlLibrary& curl, CURL* handle, const Request& request) {
  curl.easy_setopt(handle, CURLOPT_POST, 1L);
  curl.easy_setopt(handle, CURLOPT_POSTFIELDSIZE_LARGE,
                   static_cast<curl_off_t>(request.body.size()));
  curl.easy_setopt(handle, CURLOPT_POSTFIELDS, request.body.empty() ? "" : request.body.data());
  if (request.method == Method::kPut) curl.easy_setopt(handle, CURLOPT_CUSTOMREQUEST, "PUT");
}

void set_limits(const CurlLibrary& curl, CURL* handle, milliseconds connect, milliseconds total) {
  curl.easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);  // or time-outs would raise SIGALRM in the host
  curl.easy_setopt(handle, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(connect.count()));
  curl.easy_setopt(handle, CURLOPT_TIMEOUT_MS, static_cast<long>(total.count()));
  curl.easy_setopt(handle, CURLOPT_FOLLOWLOCATION, 0L);
  curl.easy_setopt(handle, CURLOPT_PROXY, "");  // also overrides the environment's
  curl.easy_setopt(handle, CURLOPT_SSL_VERIFYPEER, 1L);
  curl.easy_setopt(handle, CURLOPT_SSL_VERIFYHOST, 2L);
}

}  // namespace

// One exchange; `next` becomes the address of a redirect.
Result<Response> HttpClient::State::perform(const Request& request, const Url& url,
                                            milliseconds left, bool trusted, std::string& next) {
  const CurlLibrary* curl = library;
  CURL* handle = take_handle();
  if (handle == nullptr) return trouble("libcurl cannot make a request");
  Answer answer;
  answer.most_bytes = request.most_bytes;
  HeaderList headers(*curl);
  headers.add("Expect:");  // no round trip before a body
  headers.add("User-Agent: attnloom");
  if (!request.accept.empty()) headers.add("Accept: " + request.accept);
  if (!request.content_type.empty()) headers.add("Content-Type: " + request.content_type);
  if (trusted && !options.token.empty()) headers.add("Authorization: Bearer " + options.token);
  Url plain = url;
  plain.socket.clear();
  const std::string address = plain.text();
  curl->easy_setopt(handle, CURLOPT_URL, address.c_str());
  if (!url.socket.empty()) curl->easy_setopt(handle, CURLOPT_UNIX_SOCKET_PATH, url.socket.c_str());
  set_limits(*curl, handle, std::min(options.connect_time, left), left);
  curl->easy_setopt(handle, CURLOPT_HTTPHEADER, headers.get());
  curl->easy_setopt(handle, CURLOPT_WRITEFUNCTION, &take_body);
  curl->easy_setopt(handle, CURLOPT_WRITEDATA, &answer);
  curl->easy_setopt(handle, CURLOPT_HEADERFUNCTION, &take_head);
  curl->easy_setopt(handle, CURLOPT_HEADERDATA, &answer);
  if (request.method == Method::kHead) curl->easy_setopt(handle, CURLOPT_NOBODY, 1L);
  if (request.method == Method::kPut || request.method == Method::kPost)
    set_body(*curl, handle, request);
  const CURLcode code = curl->easy_perform(handle);
  long status = 0;
  curl->easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &status);
  const char* redirect = nullptr;
  curl->easy_getinfo(handle, CURLINFO_REDIRECT_URL, &redirect);
  if (redirect != nullptr) next = redirect;
  put_back(handle);
  if (answer.too_long) return trouble("the answer is longer than expected");
  if (code != CURLE_OK) return trouble(curl->easy_strerror(code));
  answer.response.status = static_cast<int>(status);
  return std::move(answer.response);
}

Result<Response> HttpClient::State::follow(const Request& request) {
  Url url = options.server;
  url.path += request.path;
  const Steady::time_point end = Steady::now() + options.total_time;
  for (int hop = 0; hop <= kMostRedirects; ++hop) {
    const auto left = std::chrono::duration_cast<milliseconds>(end - Steady::now());
    if (left.count() <= 0) return trouble("Timeout was reached");
    std::string next;
    ATTNLOOM_TRY(Response response,
                 perform(request, url, left, same_server(url, options.server), next));
    if (is_trouble(response.status))
      return trouble("it answers with status " + std::to_string(response.status));
    if (!is_redirect(response.status)) return response;
    // A body goes where the user sent it and nowhere else.
    const bool asks = request.method == Method::kGet || request.method == Method::kHead;
    if (!asks || !options.server.socket.empty()) return trouble("it redirects what we send");
    const Result<Url> target = parse_redirect(url, next);
    if (!target.ok()) return trouble("it redirects where we do not go: " + target.status().cause);
    url = target.value();
  }
  return trouble("it redirects more than " + std::to_string(kMostRedirects) + " times");
}

HttpClient::HttpClient(ClientOptions options)
    : state_(std::make_unique<State>(std::move(options))) {}
HttpClient::~HttpClient() = default;

const Url& HttpClient::server() const {
  return state_->options.server;
}
bool HttpClient::paused() const {
  return state_->breaker.paused();
}

Result<Response> HttpClient::send(const Request& request) {
  State& state = *state_;
  if (state.breaker.paused())
    return state.trouble("paused for " + std::to_string(Breaker::kPause.count()) + " s after " +
                         std::to_string(Breaker::kFailures) + " failures");
  ATTNLOOM_TRY(state.library, curl_library());
  Result<Response> response = state.follow(request);
  if (response.ok())
    state.breaker.succeeded();
  else
    (void)state.breaker.failed();  // the next request says that it is paused
  return response;
}

}  // namespace attnloom::http
