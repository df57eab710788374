// SPDX-License-Identifier: Apache-2.0
// Faults of a disk and of what lies on it, through the store as a process uses it: each heals or is
// refused, is counted and told, and never costs a kernel.
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <catch2/catch.hpp>
#include <fstream>

#include "../base/child_process.h"
#include "base/sha256.h"
#include "cache/entry.h"
#include "cache/layout.h"
#include "cache_for_tests.h"

namespace attnloom {
namespace {

namespace fs = std::filesystem;

constexpr int kCannotTry = 77;
constexpr uid_t kNobody = 65534;

struct Session {
  explicit Session(const std::string& root)
      : store(*files, {.root = root,
                       .warn = [this](const std::string& line) { warnings.push_back(line); },
                       .care = {}}) {}

  Result<Artifact> get(const Source& source) { return attnloom::get(store, toolchain, source); }
  LayerCounters disk() const { return store.counters().layers[0]; }

  std::unique_ptr<FileSystem> files = make_real_file_system();
  std::vector<std::string> warnings;
  FakeToolchain toolchain;
  Store store;
};

void overwrite(const std::string& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << bytes;
}

// The entry with lengths and digest of a cubin of no bytes: what a writer that trusted its compiler
// would have made.
std::string with_empty_cubin() {
  Artifact artifact = fake_artifact(fake_source());
  artifact.cubin.clear();
  return encode_entry(request_key(fake_source()), fake_source(), artifact);
}

// A disk that lets nothing be written: 0 when the kernel was compiled, used and told of once, and
// nothing but whole entries lies below the root.
int use_without_writing(const std::string& root) {
  Session session(root);
  for (const std::string text : {"new", "newer"})
    if (!session.get(fake_source(text)).ok()) return 1;
  if (session.toolchain.compiles != 2) return 2;
  if (session.store.counters().write_failures != 2 || session.store.counters().published != 0)
    return 3;
  if (session.warnings.size() != 1) return 4;
  if (session.warnings[0].find("ATTNLOOM_CACHE_DIR") == std::string::npos) return 5;
  if (session.disk().misses != 2) return 6;
  for (const std::string text : {"new", "newer"})
    if (fs::exists(path_of_entry(root, fake_source(text)))) return 7;
  const auto temps = session.files->list(root + "/v1/tmp");
  return temps.ok() && !temps->empty() ? 8 : 0;
}

}  // namespace

TEST_CASE("whatever is done to an entry's file, it heals at once and is counted once") {
  const TempFolder folder;
  const std::string path = path_of_entry(folder.root(), fake_source());
  REQUIRE(Session(folder.root()).get(fake_source()).ok());
  REQUIRE(Session(folder.root()).get(fake_source("other")).ok());
  const std::string whole = *make_real_file_system()->read(path);
  const auto fault = GENERATE(as<std::string>(), "flipped byte", "truncated", "extended", "empty",
                              "under another key", "zero-byte cubin", "directory");
  INFO(fault);
  std::string bytes = whole;
  if (fault == "flipped byte") bytes[bytes.size() / 2] ^= 1;
  if (fault == "truncated") bytes.pop_back();
  if (fault == "extended") bytes += '\0';
  if (fault == "empty") bytes.clear();
  if (fault == "under another key")
    bytes = *make_real_file_system()->read(path_of_entry(folder.root(), fake_source("other")));
  if (fault == "zero-byte cubin") bytes = with_empty_cubin();
  if (fault == "directory") {
    fs::remove(path);
    fs::create_directory(path);
  } else {
    overwrite(path, bytes);
  }
  Session session(folder.root());
  const auto artifact = session.get(fake_source());
  REQUIRE(artifact.ok());
  CHECK(*artifact == fake_artifact(fake_source()));
  CHECK(session.toolchain.compiles == 1);
  CHECK(session.disk() == LayerCounters{.misses = 1, .corrupt = 1});
  CHECK(session.store.counters().published == 1);
  CHECK(session.warnings.size() == 1);
  CHECK(*session.files->read(path) == whole);
  Session next(folder.root());
  REQUIRE(next.get(fake_source()).ok());
  CHECK(next.toolchain.compiles == 0);
  CHECK(next.disk() == LayerCounters{.hits = 1, .bytes = artifact->cubin.size()});
  CHECK(next.warnings.empty());
}

TEST_CASE("a quota or an error of the disk at any call that writes costs one warning") {
  const int error = GENERATE(EDQUOT, ENOSPC, EIO, EROFS);
  const long call = GENERATE(SYS_write, SYS_fsync, SYS_openat);
  const TempFolder folder;
  REQUIRE(Session(folder.root()).get(fake_source()).ok());
  INFO("errno " << error << ", system call " << call);
  // Opening fails for reading too: then every look-up is a miss as well.
  const int outcome = in_child(
      [&] { return forbid(call, error) ? use_without_writing(folder.root()) : kCannotTry; });
  if (outcome == kCannotTry) {
    WARN("skipped: this machine forbids filters on system calls");
    return;
  }
  CHECK(outcome == 0);
  // What was there is still there and whole, and the next process stores again.
  Session after(folder.root());
  REQUIRE(after.get(fake_source()).ok());
  CHECK(after.disk().hits == 1);
  REQUIRE(after.get(fake_source("new")).ok());
  CHECK(after.store.counters().published == 1);
}

TEST_CASE("a disk that is full to the last byte, and then is not") {
  const TempFolder folder;
  const std::string root = folder.root();
  fs::create_directory(root);
  const int outcome = in_child([&] {
    if (!enter_own_mounts()) return kCannotTry;
    if (::mount("none", root.c_str(), "tmpfs", 0, "size=64k,mode=0700") != 0) return kCannotTry;
    if (!Session(root).get(fake_source()).ok()) return 10;
    overwrite(root + "/filler", std::string(128 << 10, 'x'));
    if (const int failed = use_without_writing(root); failed != 0) return failed;
    // Reading needs no room.
    Session full(root);
    if (!full.get(fake_source()).ok() || full.disk().hits != 1) return 11;
    fs::remove(root + "/filler");
    Session free(root);
    if (!free.get(fake_source("new")).ok() || free.store.counters().published != 1) return 12;
    return Session(root).store.find(request_key(fake_source("new")), "sm_90a", {}, 0) ? 0 : 13;
  });
  if (outcome == kCannotTry) {
    WARN("skipped: this user cannot mount a tmpfs of its own");
    return;
  }
  CHECK(outcome == 0);
}

TEST_CASE("a file system mounted read-only: hits are hits, a miss is one warning") {
  const TempFolder folder;
  const std::string root = folder.root();
  fs::create_directory(root);
  const int outcome = in_child([&] {
    if (!enter_own_mounts()) return kCannotTry;
    if (::mount("none", root.c_str(), "tmpfs", 0, "mode=0700") != 0) return kCannotTry;
    if (!Session(root).get(fake_source()).ok()) return 10;
    // Old enough for a hit to want to move its time.
    fs::last_write_time(path_of_entry(root, fake_source()),
                        fs::file_time_type::clock::now() - std::chrono::hours(5));
    if (::mount("none", root.c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, "mode=0700") != 0)
      return kCannotTry;
    Session session(root);
    if (!session.get(fake_source()).ok() || session.toolchain.compiles != 0) return 11;
    if (session.disk().hits != 1 || !session.warnings.empty()) return 12;
    return use_without_writing(root);
  });
  if (outcome == kCannotTry) {
    WARN("skipped: this user cannot mount a tmpfs of its own");
    return;
  }
  CHECK(outcome == 0);
}

TEST_CASE("a root of another user, a link, or one that others may write is left out and told of") {
  const TempFolder folder;
  const std::string root = folder.root();
  REQUIRE(Session(root).get(fake_source()).ok());
  const auto fault = GENERATE(as<std::string>(), "another user's", "a link", "writable by all");
  INFO(fault);
  if (fault == "another user's") {
    if (::geteuid() != 0) return;  // only root can give a directory away
    REQUIRE(::chown(root.c_str(), kNobody, kNobody) == 0);
  }
  if (fault == "a link") {
    fs::rename(root, root + "-elsewhere");
    fs::create_directory_symlink(root + "-elsewhere", root);
  }
  if (fault == "writable by all") fs::permissions(root, fs::perms(0777));
  Session session(root);
  CHECK(session.store.root().empty());
  CHECK_FALSE(session.store.root_refusal().empty());
  REQUIRE(session.get(fake_source()).ok());
  CHECK(session.toolchain.compiles == 1);
  CHECK(session.disk() == LayerCounters{});
  CHECK(session.store.counters().misses == 1);
  CHECK(session.warnings.size() == 1);
  CHECK(session.store.pin({request_key(fake_source())}).ok());
  CHECK(session.store.pins().empty());
  session.store.keep_failure(request_key(fake_source()), kCuda130.hex,
                             make_error(Code::kCompileFailed, "", "cause"));
  CHECK_FALSE(fs::exists(root + "/v1/neg"));
}

}  // namespace attnloom
