// SPDX-License-Identifier: Apache-2.0
// The HTTP client against servers that behave and servers that do not, and the readers of what they
// say.
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <fstream>

#include "base/sha256.h"
#include "cache/http/action_result.h"
#include "cache/http/answer_head.h"
#include "cache/http/client.h"
#include "cache/http/error_answer.h"
#include "cache/http/token.h"
#include "cache_for_tests.h"
#include "raw_server.h"

namespace attnloom {
namespace {

using namespace http;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr const char* kToken = "s3cret-token";

ClientOptions options_for(const std::string& url, const std::string& token = "") {
  const Result<Url> server = parse_base_url(url);
  REQUIRE(server.ok());
  return {.server = server.value(), .token = token};
}

Result<Response> get(HttpClient& client, const std::string& path = "/x",
                     std::uint64_t most_bytes = 100) {
  return client.send({.path = path, .most_bytes = most_bytes});
}

}  // namespace

TEST_CASE("addresses are scheme, host, port and path, and nothing else") {
  CHECK(parse_base_url("http://Cache.Example:8080/a/b/")->text() ==
        "http://cache.example:8080/a/b");
  CHECK(parse_base_url("https://cache.example:443")->text() == "https://cache.example");
  CHECK(parse_base_url("http://[::1]:9/c")->host == "[::1]");
  CHECK(parse_base_url("http://[::1]")->port == 80);
  CHECK(parse_service_url("unix:/run/a.sock")->socket == "/run/a.sock");
  for (const char* text :
       {"", "ftp://a", "http://", "http://a:0", "http://a:65536", "http://a:9x", "http://a b/",
        "http://a/?q", "http://a/#f", "http://a/\\b", "http://a\\@b/", "http://a:/", "//a",
        "http://a/\r\nX: y", "http://\xc3\xa4/", "unix:/x", "http://[::1", "http://a?x=http://b"}) {
    INFO(text);
    CHECK_FALSE(parse_base_url(text).ok());
  }
  for (const char* text : {"unix:", "unix:relative"}) CHECK_FALSE(parse_service_url(text).ok());
  CHECK_FALSE(parse_service_url("unix:/" + std::string(107, 's')).ok());
  const Url plain = parse_base_url("http://cache").value();
  const Url safe = parse_base_url("https://cache").value();
  CHECK(parse_redirect(plain, "http://a/b?sig=1&x=%20")->path == "/b?sig=1&x=%20");
  CHECK(parse_redirect(plain, "https://a/b").ok());
  CHECK(parse_redirect(safe, "https://a/b").ok());
  CHECK_FALSE(parse_redirect(safe, "http://a/b").ok());
  CHECK_FALSE(parse_redirect(plain, "http://u:p@a/b").ok());
  CHECK_FALSE(parse_redirect(plain, "").ok());
  CHECK(same_server(plain, parse_base_url("http://CACHE:80/other").value()));
  CHECK_FALSE(same_server(plain, safe));
  CHECK_FALSE(same_server(plain, parse_base_url("http://cache:81").value()));
  CHECK_FALSE(same_server(plain, parse_base_url("http://cache.").value()));
}

TEST_CASE("an address with a password is refused without repeating it") {
  const Result<Url> url = parse_base_url("http://user:hunter2@cache.example/");
  REQUIRE_FALSE(url.ok());
  CHECK(url.status().to_string().find("hunter2") == std::string::npos);
  CHECK(url.status().remedy.find("token") != std::string::npos);
}

TEST_CASE("lines of an answer's head") {
  std::optional<std::uint64_t> length;
  std::string signature;
  const auto read = [&](const char* line) { read_head_line(line, length, signature); };
  read("HTTP/1.1 200 OK\r\n");
  read("content-LENGTH:  17 \r\n");
  read("Attnloom-Signature: abc def\r\n");
  CHECK(length == 17u);
  CHECK(signature == "abc def");
  read("Content-Length: 18446744073709551616\r\n");
  CHECK_FALSE(length.has_value());
  read("Content-Length: 5 5\r\n");
  CHECK_FALSE(length.has_value());
  read("no colon\r\n");
  read(":\r\n");
  read("HTTP/1.1 200 OK\r\n");
  CHECK(signature.empty());
}

TEST_CASE("action results: ours, a server's own JSON, and refusals") {
  const std::string hash(64, 'a');
  const std::vector<OutputFile> files = {{"x.alk", hash, 5},
                                         {"x.alk.sig", std::string(64, 'b'), 7}};
  CHECK(print_action_result(files) ==
        R"({"outputFiles":[{"digest":{"hash":")" + hash +
            R"(","sizeBytes":"5"},"path":"x.alk"},{"digest":{"hash":")" + std::string(64, 'b') +
            R"(","sizeBytes":"7"},"path":"x.alk.sig"}]})");
  CHECK(parse_action_result(print_action_result(files)).value() == files);
  const auto parsed = parse_action_result(
      R"({"outputFiles":[{"path":"x.alk","digest":{"hash":")" + hash +
      R"(","sizeBytes":5},"isExecutable":true}],"executionMetadata":{"worker":"10.0.0.1"},"exitCode":0})");
  REQUIRE(parsed.ok());
  CHECK(parsed.value() == std::vector<OutputFile>{{"x.alk", hash, 5}});
  CHECK(find_file(parsed.value(), "x.alk")->bytes == 5);
  CHECK(find_file(parsed.value(), "y.alk") == nullptr);
  const std::string digest = R"("digest":{"hash":")" + hash + R"(","sizeBytes":"5"})";
  const std::string wrong[] = {
      std::string(),
      std::string("{}"),
      std::string("[]"),
      std::string("null"),
      std::string(R"({"outputFiles":{}})"),
      std::string(R"({"outputFiles":[1]})"),
      R"({"outputFiles":[{)" + digest + "}]}",
      std::string(R"({"outputFiles":[{"path":"a"}]})"),
      R"({"outputFiles":[{"path":"a","digest":{"hash":"../../etc","sizeBytes":"5"}}]})",
      R"({"outputFiles":[{"path":"a","digest":{"hash":")" + hash + R"(","sizeBytes":"-5"}}]})",
      R"({"outputFiles":[{"path":"a","digest":{"hash":")" + hash + R"(","sizeBytes":-5}}]})",
      R"({"outputFiles":[{"path":"a","digest":{"hash":")" + hash + R"(","sizeBytes":"5 "}}]})",
      R"({"exitCode":1,"outputFiles":[{"path":"a",)" + digest + "}]}",
      std::string(70'000, ' '),
      "<html>" + std::string(100, 'x')};
  for (const std::string& text : wrong) {
    INFO(text.substr(0, 100));
    const auto refused = parse_action_result(text);
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.status().code == Code::kCacheCorrupt);
  }
}

TEST_CASE("errors of a service: its code and words, on one line, or REMOTE") {
  const Status error = read_error_answer(
      R"({"code":"COMPILE_FAILED","path":"$.x","cause":"a\nb","remedy":"c","retryable":false})");
  CHECK(error.code == Code::kCompileFailed);
  CHECK(error.path == "$.x");
  CHECK(error.cause == "a b");
  CHECK(error.remedy == "c");
  CHECK(read_error_answer(R"({"code":"UNHEARD_OF","cause":"a"})").code == Code::kRemote);
  CHECK(read_error_answer(R"({"code":"OK","cause":"a"})").code == Code::kRemote);
  CHECK(read_error_answer(R"({"code":"INTERNAL","cause":")" + std::string(9000, 'x') + "\"}")
            .cause.size() == 2000);
  const std::string wrong[] = {
      "", "[]", "null", "<html>", R"({"code":7,"cause":7})", std::string(70'000, ' ')};
  for (const std::string& text : wrong) {
    CHECK(read_error_answer(text).code == Code::kRemote);
    CHECK_FALSE(read_error_answer(text).cause.empty());
  }
}

TEST_CASE("a token comes from a file that nobody else can read") {
  const TempFolder folder;
  const std::string path = folder.path() + "/token";
  const auto write = [&](const std::string& text, mode_t mode) {
    std::ofstream(path) << text;
    ::chmod(path.c_str(), mode);
  };
  write(std::string(kToken) + "\n", 0600);
  CHECK(read_token(path).value() == kToken);
  std::filesystem::create_symlink(path, folder.path() + "/link");
  CHECK(read_token(folder.path() + "/link").value() == kToken);
  for (const mode_t mode : {0640, 0604, 0660}) {
    write(kToken, mode);
    const auto token = read_token(path);
    REQUIRE_FALSE(token.ok());
    CHECK(token.status().to_string().find(kToken) == std::string::npos);
  }
  for (const std::string& text : {std::string("\n"), std::string("two words"),
                                  std::string("a\nAuthorization: b"), std::string(5000, 'a')}) {
    write(text, 0600);
    CHECK_FALSE(read_token(path).ok());
  }
  CHECK_FALSE(read_token(folder.path() + "/none").ok());
  CHECK(same_token("abc", "abc"));
  CHECK_FALSE(same_token("abc", "abd"));
  CHECK_FALSE(same_token("abc", "abcd"));
}

TEST_CASE("GET, HEAD, PUT and POST with what was asked for") {
  RawServer server([](const Asked& asked) {
    return answer(asked.method == "PUT" ? 201 : 200, asked.method == "HEAD" ? "" : "body");
  });
  HttpClient client(options_for(server.url() + "/base", kToken));
  const auto got = client.send({.path = "/ac/1", .accept = "application/json", .most_bytes = 4});
  REQUIRE(got.ok());
  CHECK(got->status == 200);
  CHECK(got->body == "body");
  CHECK(got->content_length == 4u);
  CHECK(client.send({.method = Method::kHead, .path = "/cas/1"})->status == 200);
  const std::string bytes("a\0b", 3);
  CHECK(client
            .send({.method = Method::kPut,
                   .path = "/cas/1",
                   .content_type = "text/x",
                   .body = bytes,
                   .most_bytes = 4})
            ->status == 201);
  CHECK(
      client.send({.method = Method::kPost, .path = "/v1", .body = "", .most_bytes = 4})->status ==
      200);
  const std::vector<Asked> asked = server.asked();
  REQUIRE(asked.size() == 4);
  CHECK(asked[0].target == "/base/ac/1");
  CHECK(asked[0].has("Accept: application/json\r\n"));
  CHECK(asked[0].has("Authorization: Bearer s3cret-token\r\n"));
  CHECK(asked[1].method == "HEAD");
  CHECK(asked[2].method == "PUT");
  CHECK(asked[2].body == bytes);
  CHECK(asked[2].has("Content-Type: text/x\r\n"));
  CHECK_FALSE(asked[2].has("Expect"));
  CHECK(asked[3].method == "POST");
}

TEST_CASE("statuses of the request are answers, troubles of the server are REMOTE") {
  int status = 404;
  RawServer server([&](const Asked&) { return answer(status, "no"); });
  HttpClient client(options_for(server.url()));
  for (const int given : {200, 204, 400, 401, 403, 404, 410}) {
    status = given;
    CHECK(get(client)->status == given);
  }
  for (const int given : {500, 503, 429, 408}) {
    HttpClient other(options_for(server.url(), kToken));
    status = given;
    const auto failed = get(other);
    REQUIRE_FALSE(failed.ok());
    CHECK(failed.status().code == Code::kRemote);
    CHECK(failed.status().cause ==
          server.url() + ": it answers with status " + std::to_string(given));
  }
}

TEST_CASE("answers that are too long, cut off, silent or no HTTP") {
  std::string raw;
  RawServer server([&](const Asked&) { return raw; });
  const auto refused = [&](const std::string& bytes) {
    raw = bytes;
    HttpClient client(options_for(server.url()));
    const auto answered = get(client);
    REQUIRE_FALSE(answered.ok());
    return answered.status().cause;
  };
  const std::string too_long = server.url() + ": the answer is longer than expected";
  CHECK(refused(answer(200, std::string(101, 'x'))) == too_long);
  CHECK(refused("HTTP/1.1 200 X\r\n\r\n" + std::string(1 << 20, 'x')) == too_long);
  CHECK(refused("HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\nc8\r\n" +
                std::string(200, 'x') + "\r\n0\r\n\r\n") == too_long);
  CHECK(refused("HTTP/1.1 200 X\r\nX: " + std::string(90'000, 'x') + "\r\n\r\n") == too_long);
  refused("HTTP/1.1 200 X\r\nContent-Length: 50\r\n\r\nonly this");
  refused("HTTP/1.1 200 X\r\nContent-Length: 50\r\n");
  refused("");
  refused("garbage\r\n\r\n");
  raw = answer(200, std::string(100, 'x'));
  HttpClient client(options_for(server.url()));
  CHECK(get(client)->body.size() == 100);
}

TEST_CASE("a slow server costs the time-out, and no server nothing") {
  std::atomic<bool> release{false};
  RawServer server([&](const Asked&) {
    while (!release) std::this_thread::sleep_for(milliseconds(1));
    return answer(200, "late");
  });
  ClientOptions options = options_for(server.url());
  options.total_time = milliseconds(100);
  HttpClient client(options);
  const auto late = get(client);
  release = true;
  REQUIRE_FALSE(late.ok());
  CHECK(late.status().cause == server.url() + ": Timeout was reached");
  std::string gone;
  {
    RawServer closed([](const Asked&) { return std::string(); });
    gone = closed.url();
  }
  HttpClient nobody(options_for(gone));
  CHECK(get(nobody).status().code == Code::kRemote);
}

TEST_CASE(
    "three failures in a row pause a server for 60 s; one failure after that pauses it again") {
  bool broken = true;
  RawServer server([&](const Asked&) { return broken ? answer(500, "") : answer(200, "ok"); });
  std::chrono::steady_clock::time_point now{seconds(1000)};
  ClientOptions options = options_for(server.url());
  options.clock = [&] { return now; };
  HttpClient client(options);
  CHECK_FALSE(get(client).ok());
  CHECK_FALSE(get(client).ok());
  broken = false;
  CHECK(get(client).ok());  // two failures are forgotten
  broken = true;
  for (int i = 0; i < 3; ++i) {
    CHECK_FALSE(client.paused());
    CHECK_FALSE(get(client).ok());
  }
  CHECK(client.paused());
  CHECK(get(client).status().cause == server.url() + ": paused for 60 s after 3 failures");
  CHECK(server.asked().size() == 6);
  now += seconds(59);
  CHECK_FALSE(get(client).ok());
  CHECK(server.asked().size() == 6);
  now += seconds(1);
  CHECK_FALSE(get(client).ok());
  CHECK(server.asked().size() == 7);
  CHECK(client.paused());
  now += seconds(60);
  broken = false;
  CHECK(get(client).ok());
  CHECK_FALSE(client.paused());
  CHECK(server.asked().size() == 8);
}

TEST_CASE("redirects: three at most, the token stays with its server") {
  RawServer other([](const Asked&) { return answer(200, "theirs"); });
  std::string to;
  RawServer server([&](const Asked& asked) {
    return asked.target == "/x" ? redirect(to) : answer(200, "ours");
  });
  const auto fetch = [&](const std::string& where) {
    to = where;
    HttpClient client(options_for(server.url(), kToken));
    return get(client);
  };
  CHECK(fetch("/y")->body == "ours");
  CHECK(server.asked().back().has("Bearer s3cret-token"));
  CHECK(fetch(other.url() + "/z?signed=1")->body == "theirs");
  REQUIRE(other.asked().size() == 1);
  CHECK(other.asked()[0].target == "/z?signed=1");
  CHECK_FALSE(other.asked()[0].has("s3cret-token"));
  CHECK_FALSE(other.asked()[0].has("Authorization"));
  // The same machine under another name is another server.
  CHECK(fetch(server.url("localhost") + "/y")->body == "ours");
  CHECK_FALSE(server.asked().back().has("s3cret-token"));
  const std::size_t before = server.asked().size();
  CHECK(fetch("/x").status().cause == server.url() + ": it redirects more than 3 times");
  CHECK(server.asked().size() == before + 4);
  for (const char* bad : {"ftp://127.0.0.1/", "file:///etc/passwd", "http://u:p@127.0.0.1/"}) {
    INFO(bad);
    CHECK_FALSE(fetch(bad).ok());
  }
}

TEST_CASE("what we send follows no redirect") {
  RawServer other([](const Asked&) { return answer(200, ""); });
  RawServer server([&](const Asked&) { return redirect(other.url() + "/take", 307); });
  HttpClient client(options_for(server.url(), kToken));
  CHECK(client.send({.method = Method::kPut, .path = "/cas/1", .body = "secret"}).status().cause ==
        server.url() + ": it redirects what we send");
  CHECK(other.asked().empty());
}

TEST_CASE("the environment's proxy is not asked") {
  RawServer proxy([](const Asked&) { return answer(200, "proxy"); });
  RawServer server([](const Asked&) { return answer(200, "direct"); });
  ::setenv("http_proxy", proxy.url().c_str(), 1);
  HttpClient client(options_for(server.url(), kToken));
  CHECK(get(client)->body == "direct");
  ::unsetenv("http_proxy");
  CHECK(proxy.asked().empty());
}

}  // namespace attnloom
