// SPDX-License-Identifier: Apache-2.0
#include "base/files.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/base/temp_directory.h"

namespace attnloom {
namespace {

using Names = std::vector<std::string>;

class UmaskGuard {
 public:
  explicit UmaskGuard(mode_t mask) : before_(::umask(mask)) {}
  ~UmaskGuard() { ::umask(before_); }

 private:
  mode_t before_;
};

TEST_CASE("A published file is private, whole and the only one left") {
  const TempDirectory root;
  const auto files = make_real_file_system();
  const std::string bytes("a\0b\n", 4);
  REQUIRE(files->publish(root.path(), root / "x", bytes, Publish::kFirstWins).ok());
  CHECK(files->read(root / "x").value() == bytes);
  CHECK(files->list(root.path()).value() == Names{"x"});
  const FileInfo info = files->info(root / "x");
  CHECK(info.exists);
  CHECK(info.is_regular);
  CHECK_FALSE(info.is_symlink);
  CHECK(info.bytes == 4);
  CHECK(info.mode == 0600);
  CHECK(info.owner == ::geteuid());
  CHECK(info.mtime_ns > 1'600'000'000'000'000'000);
  CHECK_FALSE(files->info(root / "absent").exists);
}

TEST_CASE("The first publisher wins; a replacement replaces") {
  const TempDirectory root;
  const auto files = make_real_file_system();
  REQUIRE(files->publish(root.path(), root / "x", "one", Publish::kFirstWins).ok());
  REQUIRE(files->publish(root.path(), root / "x", "two", Publish::kFirstWins).ok());
  CHECK(files->read(root / "x").value() == "one");
  REQUIRE(files->publish(root.path(), root / "x", "three", Publish::kReplace).ok());
  CHECK(files->read(root / "x").value() == "three");
  CHECK(files->list(root.path()).value() == Names{"x"});
}

TEST_CASE("Modes do not depend on the umask") {
  for (const mode_t mask : {0000u, 0022u, 0777u}) {
    const TempDirectory root;
    const auto files = make_real_file_system();
    const UmaskGuard guard(mask);
    REQUIRE(files->make_directories(root / "a/b").ok());
    CHECK(files->info(root / "a").mode == 0700);
    CHECK(files->info(root / "a/b").mode == 0700);
    REQUIRE(files->publish(root / "a", root / "a/b/x", "1", Publish::kReplace).ok());
    CHECK(files->info(root / "a/b/x").mode == 0600);
  }
}

TEST_CASE("Directories: again is success, a file or a link in the way is not") {
  const TempDirectory root;
  const auto files = make_real_file_system();
  REQUIRE(files->make_directories(root / "a/b/").ok());
  REQUIRE(files->make_directories(root / "a/b").ok());
  std::ofstream(root / "file") << "x";
  CHECK(files->make_directories(root / "file").code == Code::kCacheIo);
  CHECK(files->make_directories(root / "file/a").code == Code::kCacheIo);
  REQUIRE(::symlink((root / "a").c_str(), (root / "link").c_str()) == 0);
  CHECK(files->make_directories(root / "link").code == Code::kCacheIo);
  CHECK(files->make_directories(root / "link/c").ok());  // a parent may be a link
  CHECK(files->info(root / "a/c").is_directory);
}

TEST_CASE("Links are never followed at the last component") {
  const TempDirectory root;
  const auto files = make_real_file_system();
  std::ofstream(root / "target") << "secret";
  REQUIRE(::symlink((root / "target").c_str(), (root / "link").c_str()) == 0);
  CHECK(files->info(root / "link").is_symlink);
  CHECK_FALSE(files->info(root / "link").is_regular);
  CHECK(files->read(root / "link").status().code == Code::kCacheIo);
  REQUIRE(files->publish(root.path(), root / "link", "new", Publish::kReplace).ok());
  CHECK(files->read(root / "target").value() == "secret");
  CHECK(files->info(root / "link").is_regular);
  REQUIRE(::symlink(root.path().c_str(), (root / "dir").c_str()) == 0);
  CHECK_FALSE(files->list(root / "dir").ok());
}

TEST_CASE("A file of gigabytes is not read whole") {
  const TempDirectory root;
  const auto files = make_real_file_system();
  std::ofstream(root / "long") << "begin";
  std::filesystem::resize_file(root / "long", std::uintmax_t{1} << 40);
  CHECK(files->read(root / "long").status().cause == "longer than 256 MiB");
  CHECK(files->read_range(root / "long", 0, 5).value() == "begin");
}

TEST_CASE("What is not a regular file is not read") {
  const TempDirectory root;
  const auto files = make_real_file_system();
  REQUIRE(::mkfifo((root / "fifo").c_str(), 0600) == 0);
  CHECK(files->read(root / "fifo").status().cause == "not a regular file");  // and does not hang
  CHECK_FALSE(files->read(root.path()).ok());
  CHECK_FALSE(files->read(root / "absent").ok());
}

TEST_CASE("A write that fails half-way leaves nothing") {
  const TempDirectory root;
  const auto files = make_real_file_system();
  REQUIRE(files->publish(root.path(), root / "old", "old", Publish::kReplace).ok());
  rlimit before;
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto signal_before = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{4096, before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  const std::string bytes(10'000, 'x');
  const Status fresh = files->publish(root.path(), root / "new", bytes, Publish::kFirstWins);
  const Status over = files->publish(root.path(), root / "old", bytes, Publish::kReplace);
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, signal_before);
  CHECK(fresh.code == Code::kCacheIo);
  CHECK(over.code == Code::kCacheIo);
  CHECK(files->list(root.path()).value() == Names{"old"});
  CHECK(files->read(root / "old").value() == "old");
}

TEST_CASE("A publication that cannot take its name leaves nothing") {
  const TempDirectory root;
  const auto files = make_real_file_system();
  REQUIRE(files->make_directories(root / "dir/full").ok());
  CHECK_FALSE(files->publish(root.path(), root / "dir", "x", Publish::kReplace).ok());
  CHECK_FALSE(files->publish(root.path(), root / "none/x", "x", Publish::kFirstWins).ok());
  CHECK_FALSE(files->publish(root / "none", root / "x", "x", Publish::kFirstWins).ok());
  CHECK(files->list(root.path()).value() == Names{"dir"});
}

TEST_CASE("Rename, remove and list") {
  const TempDirectory root;
  const auto files = make_real_file_system();
  REQUIRE(files->make_directories(root / "d").ok());
  REQUIRE(files->publish(root.path(), root / "b", "", Publish::kReplace).ok());
  REQUIRE(files->rename(root / "b", root / "a").ok());
  REQUIRE(files->rename(root / "d", root / "e").ok());
  CHECK(files->list(root.path()).value() == Names{"a", "e"});
  CHECK_FALSE(files->rename(root / "b", root / "c").ok());
  CHECK(files->remove(root / "a").ok());
  CHECK(files->remove(root / "a").ok());
  CHECK_FALSE(files->remove(root / "e").ok());
}

TEST_CASE("Of many publishers of one name exactly one wins, and readers see it whole") {
  const TempDirectory root;
  const auto files = make_real_file_system();
  constexpr int kThreads = 8;
  std::atomic<int> published{0};
  std::vector<std::thread> threads;
  for (int id = 0; id < kThreads; ++id) {
    threads.emplace_back([&, id] {
      const std::string bytes(100'000, static_cast<char>('a' + id));
      if (files->publish(root.path(), root / "x", bytes, Publish::kFirstWins).ok()) ++published;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(published == kThreads);
  const std::string bytes = files->read(root / "x").value();
  CHECK(bytes == std::string(100'000, bytes.at(0)));
  CHECK(files->list(root.path()).value() == Names{"x"});
}

}  // namespace
}  // namespace attnloom
