// SPDX-License-Identifier: Apache-2.0
// What may be said about servers, in which order, and what is refused.
#include "engine/remote_settings.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <fstream>

#include "base/temp_directory.h"

namespace attnloom {
namespace {

Environment environment(std::map<std::string, std::string> values) {
  return Environment{std::move(values)};
}

Status refused(const RemoteChoices& choices, std::map<std::string, std::string> values = {}) {
  return resolve_remote(choices, environment(std::move(values)), nullptr).status();
}

std::shared_ptr<const TrustedKeys> some_keys() {
  return std::make_shared<const TrustedKeys>(
      TrustedKeys::parse(SigningKey::generate().public_pem(), "test").value());
}

void write(const std::string& path, const std::string& text, mode_t mode) {
  std::ofstream(path) << text;
  ::chmod(path.c_str(), mode);
}

}  // namespace

TEST_CASE("no server unless one is named") {
  const auto settings = resolve_remote({}, environment({}), nullptr);
  REQUIRE(settings.ok());
  CHECK_FALSE(settings->remote);
  CHECK_FALSE(settings->service);
  CHECK(settings->shown["remote"] == Json({{"url", ""}, {"origin", "default"}}));
  CHECK(settings->shown["remote_write"] == Json({{"value", false}, {"origin", "default"}}));
}

TEST_CASE("option before variable, and what both stand for") {
  const TempDirectory folder;
  const std::string token = folder.path() + "/token";
  const std::string key = folder.path() + "/key";
  const SigningKey signing = SigningKey::generate();
  write(token, "s3cret-token\n", 0600);
  write(key, signing.private_pem(), 0600);
  const Environment variables = environment({{"ATTNLOOM_REMOTE", "http://variable:8080/a/"},
                                             {"ATTNLOOM_REMOTE_WRITE", "1"},
                                             {"ATTNLOOM_REMOTE_TOKEN_FILE", token},
                                             {"ATTNLOOM_SIGN_KEY", key},
                                             {"ATTNLOOM_REMOTE_UNSIGNED", "1"}});
  const auto settings = resolve_remote({}, variables, nullptr);
  REQUIRE(settings.ok());
  REQUIRE(settings->remote);
  CHECK(settings->remote->client.server.text() == "http://variable:8080/a");
  CHECK(settings->remote->client.token == "s3cret-token");
  CHECK(settings->remote->client.connect_time == std::chrono::milliseconds(200));
  CHECK(settings->remote->client.total_time == std::chrono::seconds(2));
  CHECK(settings->remote->write);
  CHECK(settings->remote->unsigned_entries);
  CHECK(settings->remote->signing_key->key_id() == signing.key_id());
  CHECK(settings->shown.dump().find("s3cret") == std::string::npos);
  const RemoteChoices choices = {.remote = "https://option", .write = false};
  const auto chosen = resolve_remote(choices, variables, nullptr);
  REQUIRE(chosen.ok());
  CHECK(chosen->remote->client.server.text() == "https://option");
  CHECK_FALSE(chosen->remote->write);
  CHECK(chosen->shown["remote"]["origin"] == "option remote");
  CHECK(chosen->shown["remote_token_file"] ==
        Json({{"path", token}, {"origin", "ATTNLOOM_REMOTE_TOKEN_FILE"}}));
}

TEST_CASE("a server needs keys, or the user's word") {
  for (const char* variable : {"ATTNLOOM_REMOTE", "ATTNLOOM_COMPILE_URL"}) {
    const Status error = refused({}, {{variable, "http://cache"}});
    CHECK(error.code == Code::kUntrusted);
    CHECK(error.path == variable);
    CHECK(resolve_remote({}, environment({{variable, "http://cache"}}), some_keys()).ok());
  }
}

TEST_CASE("offline asks nobody, and reads no secret") {
  const auto settings = resolve_remote({},
                                       environment({{"ATTNLOOM_REMOTE", "http://cache"},
                                                    {"ATTNLOOM_COMPILE_URL", "unix:/run/a"},
                                                    {"ATTNLOOM_REMOTE_TOKEN_FILE", "/none"},
                                                    {"ATTNLOOM_OFFLINE", "1"}}),
                                       nullptr);
  REQUIRE(settings.ok());
  CHECK_FALSE(settings->remote);
  CHECK_FALSE(settings->service);
  CHECK_FALSE(settings->signing_key);
  CHECK(settings->shown["offline"] == Json({{"value", true}, {"origin", "ATTNLOOM_OFFLINE"}}));
}

TEST_CASE("a service that compiles itself looks at no other") {
  const auto settings = resolve_remote(
      {.no_service = true}, environment({{"ATTNLOOM_COMPILE_URL", "http://cache"}}), nullptr);
  REQUIRE(settings.ok());
  CHECK_FALSE(settings->service);
}

TEST_CASE("the error names option or variable, and repeats no secret") {
  const TempDirectory folder;
  const std::string open = folder.path() + "/open";
  write(open, "s3cret-token\n", 0644);
  const std::string host = "http://cache";
  CHECK(refused({.remote = "cache:8080", .unsigned_entries = true}).path == "option remote");
  for (const char* offline : {"0", "1"}) {
    const Status error =
        refused({}, {{"ATTNLOOM_REMOTE", "http://u:hunter2@cache"}, {"ATTNLOOM_OFFLINE", offline}});
    CHECK(error.path == "ATTNLOOM_REMOTE");
    CHECK(error.to_string().find("hunter2") == std::string::npos);
  }
  CHECK(refused({}, {{"ATTNLOOM_REMOTE_WRITE", "yes"}}).path == "ATTNLOOM_REMOTE_WRITE");
  const Status token = refused({.remote = host, .token_file = open, .unsigned_entries = true});
  CHECK(token.code == Code::kCacheIo);
  CHECK(token.path == "option remote_token_file");
  CHECK(token.to_string().find("s3cret") == std::string::npos);
  const Status key = refused({}, {{"ATTNLOOM_SIGN_KEY", open}});
  CHECK(key.path == "ATTNLOOM_SIGN_KEY");
  CHECK(refused({.compile_url = "unix:relative", .unsigned_entries = true}).path ==
        "option compile_url");
}

}  // namespace attnloom
