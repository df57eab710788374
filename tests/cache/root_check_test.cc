// SPDX-License-Identifier: Apache-2.0
// Which directories are trusted with code.
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>

#include "cache_for_tests.h"

namespace attnloom {
namespace {

namespace fs = std::filesystem;

// The reason why a store refuses `root`; such a store must work from memory and say so once.
std::string refusal(const std::string& root) {
  const auto files = make_real_file_system();
  std::vector<std::string> warnings;
  Store store(*files,
              {.root = root, .warn = [&](const std::string& line) { warnings.push_back(line); }});
  const std::string reason = store.root_refusal();
  CHECK(store.root().empty() == !reason.empty());
  CHECK(warnings.size() == (reason.empty() ? 0u : 1u));
  if (!reason.empty()) {
    CHECK(warnings[0].find(reason) != std::string::npos);
    CHECK(warnings[0].find("ATTNLOOM_CACHE_DIR") != std::string::npos);
    FakeToolchain toolchain;
    CHECK(get(store, toolchain, fake_source()).ok());
    CHECK_FALSE(fs::exists(root + "/v1"));
  }
  return reason;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("our own directory is trusted, there or not, below /tmp too") {
  const TempFolder folder;
  CHECK(refusal(folder.root()).empty());
  CHECK(refusal(folder.root() + "/a/b/").empty());
  fs::create_directory(folder.root());
  CHECK(refusal(folder.root()).empty());
  fs::permissions(folder.root(), fs::perms(0755));
  CHECK(refusal(folder.root() + "/").empty());
}

TEST_CASE("a directory that others can write is refused") {
  const TempFolder folder;
  fs::create_directory(folder.root());
  for (const int mode : {0777, 0770, 0722, 0702, 01777}) {
    REQUIRE(::chmod(folder.root().c_str(), static_cast<mode_t>(mode)) == 0);
    CHECK(contains(refusal(folder.root()), "can be written by other users"));
  }
}

TEST_CASE("a directory above it that others can write is refused, unless it is sticky") {
  const TempFolder folder;
  const std::string parent = folder.path() + "/parent";
  fs::create_directories(parent + "/cache");
  for (const int mode : {0777, 0775, 0770}) {
    REQUIRE(::chmod(parent.c_str(), static_cast<mode_t>(mode)) == 0);
    CHECK(refusal(parent + "/cache") == parent + " can be written by other users");
    CHECK(refusal(parent + "/cache/absent/yet") == parent + " can be written by other users");
  }
  REQUIRE(::chmod(parent.c_str(), 01777) == 0);
  CHECK(refusal(parent + "/cache").empty());
}

TEST_CASE("a root that is a link is refused; a link above it is followed and judged") {
  const TempFolder folder;
  fs::create_directories(folder.path() + "/real/cache");
  fs::create_directory_symlink(folder.path() + "/real/cache", folder.path() + "/link");
  CHECK(contains(refusal(folder.path() + "/link"), "symbolic link"));
  fs::create_directory_symlink(folder.path() + "/real", folder.path() + "/way");
  CHECK(refusal(folder.path() + "/way/cache").empty());
  fs::permissions(folder.path() + "/real", fs::perms(0777));
  CHECK(contains(refusal(folder.path() + "/way/cache"), "/real can be written by other users"));
  fs::create_directory_symlink(folder.path() + "/nowhere", folder.path() + "/broken");
  CHECK(contains(refusal(folder.path() + "/broken/cache"), "broken link"));
}

TEST_CASE("another user's directory is refused") {
  if (::geteuid() != 0) return;  // only root can give a directory away
  const TempFolder folder;
  fs::create_directories(folder.path() + "/theirs/cache");
  REQUIRE(::chown((folder.path() + "/theirs").c_str(), 65534, 65534) == 0);
  CHECK(contains(refusal(folder.path() + "/theirs"), "belongs to user 65534"));
  CHECK(contains(refusal(folder.path() + "/theirs/cache"), "belongs to user 65534"));
}

TEST_CASE("a file is no directory") {
  const TempFolder folder;
  std::ofstream(folder.root()) << "text";
  fs::permissions(folder.root(), fs::perms(0600));
  CHECK(contains(refusal(folder.root()), "not a directory"));
  CHECK(contains(refusal(folder.root() + "/below"), "not a directory"));
}

TEST_CASE("a directory that becomes unsafe before the first write is not written") {
  const TempFolder folder;
  const auto files = make_real_file_system();
  Store store(*files, {.root = folder.root()});
  CHECK(store.root() == folder.root());
  fs::create_directory(folder.root());
  fs::permissions(folder.root(), fs::perms(0777));
  const Status status =
      store.publish(request_key(fake_source()), fake_source(), fake_artifact(fake_source()));
  CHECK(status.code == Code::kCacheIo);
  CHECK(contains(status.cause, "can be written by other users"));
  CHECK_FALSE(fs::exists(folder.root() + "/v1/k"));
}

}  // namespace attnloom
