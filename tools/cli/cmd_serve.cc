// SPDX-License-Identifier: Apache-2.0
// attnloom serve: the compile service. POST /v1/kernels compiles what is asked for, once for all
// that ask at the same time; GET /metrics and /healthz watch it. It ends on SIGTERM or SIGINT when
// what runs is finished.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <iostream>
#include <thread>

#include "cache/http/token.h"
#include "engine/statistics.h"
#include "tools/cli/bounded_server.h"
#include "tools/cli/kernel_request.h"
#include "tools/cli/listen_address.h"
#include "tools/cli/output.h"
#include "tools/cli/session.h"

namespace attnloom::cli {
namespace {

constexpr std::size_t kMostBodyBytes = 256 << 10;
constexpr int kThreads = 64;       // most of them wait: compiles are bounded elsewhere
constexpr int kMostRequests = 48;  // at a time; the other threads say so, and answer /healthz
constexpr const char* kJson = "application/json";

struct ServeOptions {
  CommonOptions common;
  std::string listen;
  std::string token_file;
  std::vector<std::string> variants;
  bool allow_source = false;
};

int http_status(const Status& error) {
  switch (error.code) {
    case Code::kSpecInvalid:
    case Code::kArgumentInvalid:
      return 400;
    case Code::kSpecUnsupported:
    case Code::kCompileFailed:
    case Code::kResourceLimit:
    case Code::kTemplate:
      return 422;
    case Code::kUntrusted:
      return 403;
    default:
      return is_retryable(error.code) ? 503 : 500;
  }
}

void answer_error(httplib::Response& response, int status, const Status& error) {
  const Json json = {{"code", code_name(error.code)},
                     {"path", error.path},
                     {"cause", error.cause},
                     {"remedy", error.remedy},
                     {"retryable", is_retryable(error.code)}};
  response.status = status;
  response.set_content(json.dump(-1, ' ', false, Json::error_handler_t::replace), kJson);
}

Status too_long() {
  return make_error(Code::kArgumentInvalid, "", "the request is longer than 256 KiB");
}

// What httplib refuses by itself has no body.
void explain_refusal(const httplib::Request& request, httplib::Response& response) {
  if (!response.body.empty()) return;
  const std::string what = request.method + " " + request.path.substr(0, 80);
  if (response.status == 413) return answer_error(response, 413, too_long());
  if (response.status == 404)
    return answer_error(response, 404,
                        make_error(Code::kArgumentInvalid, "", what + " is not served",
                                   "POST /v1/kernels, GET /metrics and GET /healthz are"));
  answer_error(response, response.status,
               make_error(Code::kArgumentInvalid, "", "this is no HTTP request of a kernel",
                          "send all of it within ten seconds, at most 256 KiB"));
}

class Server {
 public:
  Server(KernelService service, std::string token)
      : service_(std::move(service)), token_(std::move(token)) {
    http_.new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
    http_.set_payload_max_length(kMostBodyBytes);
    http_.set_pre_routing_handler([this](const auto& request, auto& response) {
      return refuse(request, response) ? httplib::Server::HandlerResponse::Handled
                                       : httplib::Server::HandlerResponse::Unhandled;
    });
    http_.set_error_handler(httplib::Server::Handler(explain_refusal));
    http_.Post("/v1/kernels",
               [this](const auto& request, auto& response) { answer_kernel(request, response); });
    http_.Get("/metrics", [this](const auto&, auto& response) {
      response.set_content(metrics(), "text/plain; version=0.0.4");
    });
    http_.Get("/healthz",
              [](const auto&, auto& response) { response.set_content("ok\n", "text/plain"); });
  }

  // The port, or 0 for a socket; an error where nothing can be bound.
  Result<int> bind(const ListenAddress& address);
  // Until stop(); returns when the last request is answered.
  void run() {
    http_.listen_after_bind();
    ended_ = true;
  }
  void stop() {
    draining_ = true;
    http_.hurry();
    // A server that has not begun yet would not hear it.
    while (!http_.is_running() && !ended_)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    http_.stop();
  }

 private:
  bool refuse(const httplib::Request& request, httplib::Response& response);
  void answer_kernel(const httplib::Request& request, httplib::Response& response);
  std::string metrics() const;

  const KernelService service_;
  const std::string token_;
  BoundedServer http_;
  std::atomic<bool> draining_{false}, ended_{false};
  std::atomic<int> running_{0};
  std::atomic<std::uint64_t> served_{0}, failed_{0}, refused_{0};
};

Result<int> Server::bind(const ListenAddress& address) {
  int port = address.port;
  bool bound = false;
  if (!address.socket.empty()) {
    ATTNLOOM_CHECK(clear_socket(address.socket));
    const mode_t before = ::umask(077);  // only this user may connect, from the first moment on
    http_.set_address_family(AF_UNIX);
    bound = http_.bind_to_port(address.socket, 1);
    ::umask(before);
  } else if (port == 0) {
    port = http_.bind_to_any_port(address.host);
    bound = port > 0;
  } else {
    bound = http_.bind_to_port(address.host, port);
  }
  if (bound && http_.lengthen_queue()) return address.socket.empty() ? port : 0;
  return make_error(Code::kCacheIo, "--listen", "cannot listen there",
                    "see whether another program does, or name another place");
}

// What is answered before anything of a request is looked at; /healthz alone needs no token.
bool Server::refuse(const httplib::Request& request, httplib::Response& response) {
  if (request.path == "/healthz") return false;
  if (!token_.empty() &&
      !http::same_token(request.get_header_value("Authorization"), "Bearer " + token_)) {
    ++refused_;
    response.set_header("WWW-Authenticate", "Bearer");
    answer_error(response, 401, make_error(Code::kUntrusted, "", "the bearer token is not right"));
    return true;
  }
  if (!draining_) return false;
  answer_error(response, 503, make_error(Code::kCancelled, "", "the service is being stopped"));
  return true;
}

void Server::answer_kernel(const httplib::Request& request, httplib::Response& response) {
  struct Running {
    std::atomic<int>& count;
    ~Running() { --count; }
  };
  // httplib holds a body in chunks to no length.
  if (request.body.size() > kMostBodyBytes) return answer_error(response, 413, too_long());
  const int now = ++running_;
  const Running running{running_};
  if (now > kMostRequests) {
    ++refused_;
    response.set_header("Retry-After", "1");
    answer_error(response, 503, make_error(Code::kCompileTimeout, "", "too many requests at once"));
    return;
  }
  const Result<ServedKernel> served = serve_kernel(service_, request.body);
  if (!served.ok()) {
    ++failed_;
    answer_error(response, http_status(served.status()), served.status());
    return;
  }
  ++served_;
  if (!served->signature.empty()) response.set_header("Attnloom-Signature", served->signature);
  response.set_content(served->entry, "application/octet-stream");
}

std::string Server::metrics() const {
  std::string text = statistics_to_prometheus(service_.engine->statistics());
  const auto add = [&](const std::string& metric, const std::string& help, const std::string& type,
                       std::uint64_t value) {
    const std::string name = "attnloom_service_" + metric;
    text += "# HELP " + name + " " + help + ".\n# TYPE " + name + " " + type + "\n" + name + " " +
            std::to_string(value) + "\n";
  };
  add("served_total", "Requests that were answered with an entry", "counter", served_);
  add("failed_total", "Requests for a kernel that was not made", "counter", failed_);
  add("refused_total", "Requests without the token, or one too many", "counter", refused_);
  add("running", "Requests for a kernel that run now", "gauge",
      static_cast<std::uint64_t>(running_.load()));
  return text;
}

Result<KernelService> make_service(const ServeOptions& options, Engine& engine) {
  if (engine.store().root().empty()) {
    return make_error(Code::kCacheIo, "cache_dir", "a service needs a writable cache",
                      "name one with --cache-dir");
  }
  KernelService service;
  service.engine = &engine;
  if (options.allow_source) service.variants.allow_any();
  for (const std::string& what : options.variants) {
    ATTNLOOM_CHECK(service.variants.add(what));
  }
  if (options.variants.empty()) {
    ATTNLOOM_CHECK(service.variants.add("shipped"));
  }
  ATTNLOOM_TRY(service.signing_key, open_signing_key(options.common));
  return service;
}

// Blocks the signals in this and every later thread; wait() takes them.
class EndSignals {
 public:
  EndSignals() {
    ::sigemptyset(&set_);
    ::sigaddset(&set_, SIGTERM);
    ::sigaddset(&set_, SIGINT);
    ::pthread_sigmask(SIG_BLOCK, &set_, nullptr);
  }
  void wait() const {
    int signal = 0;
    ::sigwait(&set_, &signal);
  }

 private:
  sigset_t set_ = {};
};

// An asker on the same node holds the lock of the kernel while it waits for us, so the service
// locks elsewhere: against other services, and not against its clients.
Status separate_from_clients(SettingOptions& settings) {
  settings.remote.no_service = true;
  const std::unique_ptr<FileSystem> files = make_real_file_system();
  ATTNLOOM_TRY(const Settings resolved, resolve_settings(settings, read_environment(), *files));
  if (!resolved.lock_dir.value.empty()) settings.lock_dir = resolved.lock_dir.value + "/serve";
  return ok_status();
}

Result<int> run_serve(const ServeOptions& given) {
  ServeOptions options = given;
  ATTNLOOM_CHECK(separate_from_clients(options.common.settings));
  ATTNLOOM_TRY(const ListenAddress address, parse_listen(options.listen));
  std::string token;
  if (!options.token_file.empty()) {
    ATTNLOOM_TRY(token, http::read_token(options.token_file));
  }
  ATTNLOOM_CHECK(check_sandbox(options.common));
  const EndSignals signals;
  ATTNLOOM_TRY(const std::unique_ptr<Engine> engine,
               open_engine(options.common, DeviceKind::kNone));
  ATTNLOOM_TRY(KernelService service, make_service(options, *engine));
  Server server(std::move(service), std::move(token));
  ATTNLOOM_TRY(const int port, server.bind(address));
  const std::string place = address.socket.empty()
                                ? "http://" + options.listen.substr(0, options.listen.rfind(':')) +
                                      ":" + std::to_string(port)
                                : "unix:" + address.socket;
  if (options.common.json)
    print_json({{"listening", place}});
  else
    std::cout << "listening on " << place << '\n';
  std::cout.flush();
  std::thread accepting([&] { server.run(); });
  signals.wait();
  std::cerr << "attnloom: stopping; what runs is finished first\n";
  server.stop();
  accepting.join();
  if (!address.socket.empty()) ::unlink(address.socket.c_str());
  return static_cast<int>(kAgrees);
}

}  // namespace

void add_serve(CLI::App& program, Invocation& invocation) {
  auto options = std::make_shared<ServeOptions>();
  CLI::App& command = add_command<ServeOptions>(
      program, invocation, "serve", "compile for other processes and machines over HTTP", options,
      run_serve);
  command
      .add_option("--listen", options->listen, "unix:/path, or 127.0.0.1:PORT (0: any free port)")
      ->required();
  command
      .add_option("--token-file", options->token_file,
                  "file (mode 0600) with the bearer token that requests must carry")
      ->check(not_empty());
  command.add_option("--variants", options->variants,
                     "shipped variant, or folder of spec files, whose source text is compiled "
                     "(default: all shipped ones)");
  command.add_flag("--allow-source", options->allow_source, "compile any source text");
  add_compile_options(command, options->common);
}

}  // namespace attnloom::cli
