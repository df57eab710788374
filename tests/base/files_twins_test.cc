// SPDX-License-Identifier: Apache-2.0
// What the disk and its twin in memory must do alike.
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "base/files.h"
#include "temp_directory.h"

namespace attnloom {
namespace {

struct Twin {
  const TempDirectory folder;
  std::unique_ptr<FileSystem> files;
  std::string root;

  explicit Twin(bool memory)
      : files(memory ? make_memory_file_system() : make_real_file_system()),
        root(memory ? "/c" : folder / "c") {
    REQUIRE(files->make_directories(root).ok());
  }
};

}  // namespace

TEST_CASE("A time that was set is the time, of files that are there only") {
  Twin twin(GENERATE(false, true));
  REQUIRE(twin.files->publish(twin.root, twin.root + "/a", "1", Publish::kFirstWins).ok());
  for (const std::int64_t time : {1'700'000'000'000'000'001, 1'000'000'000'000'000'000}) {
    CHECK(twin.files->touch(twin.root + "/a", time).ok());
    CHECK(twin.files->info(twin.root + "/a").mtime_ns == time);
  }
  CHECK(twin.files->touch(twin.root + "/b", 1).code == Code::kCacheIo);
}

TEST_CASE("What is appended comes to the end of a private file") {
  Twin twin(GENERATE(false, true));
  const mode_t before = ::umask(0777);
  const Status first = twin.files->append(twin.root + "/a", "one");
  ::umask(before);
  CHECK(first.ok());
  CHECK(twin.files->append(twin.root + "/a", "").ok());
  CHECK(twin.files->append(twin.root + "/a", "two").ok());
  CHECK(*twin.files->read(twin.root + "/a") == "onetwo");
  CHECK(twin.files->info(twin.root + "/a").mode == 0600);
  CHECK(twin.files->append(twin.root, "x").code == Code::kCacheIo);
  CHECK(twin.files->append(twin.root + "/none/a", "x").code == Code::kCacheIo);
}

TEST_CASE("A lock has one holder, and its file stays") {
  Twin twin(GENERATE(false, true));
  const std::string path = twin.root + "/lock";
  {
    const auto first = twin.files->try_lock(path);
    REQUIRE(first.ok());
    CHECK(*first != nullptr);
    const auto second = twin.files->try_lock(path);
    REQUIRE(second.ok());
    CHECK(*second == nullptr);
  }
  CHECK(twin.files->info(path).is_regular);
  CHECK(twin.files->try_lock(path).value() != nullptr);
  CHECK_FALSE(twin.files->try_lock(twin.root).ok());
  CHECK_FALSE(twin.files->try_lock(twin.root + "/none/lock").ok());
}

TEST_CASE("A tree is removed whole, and nothing beside it") {
  Twin twin(GENERATE(false, true));
  REQUIRE(twin.files->make_directories(twin.root + "/a/b").ok());
  for (const char* name : {"/a/b/x", "/a/y", "/ab"}) {
    REQUIRE(twin.files->publish(twin.root, twin.root + name, "1", Publish::kFirstWins).ok());
  }
  CHECK(twin.files->remove_tree(twin.root + "/a").ok());
  CHECK(*twin.files->list(twin.root) == std::vector<std::string>{"ab"});
  CHECK(twin.files->remove_tree(twin.root + "/a").ok());
  CHECK(twin.files->remove_tree(twin.root + "/ab").ok());
  CHECK(twin.files->list(twin.root)->empty());
}

TEST_CASE("A tree's links are removed and not followed; a lock ends with its process") {
  const TempDirectory folder;
  const auto files = make_real_file_system();
  REQUIRE(files->make_directories(folder / "a").ok());
  REQUIRE(files->make_directories(folder / "kept").ok());
  REQUIRE(files->publish(folder / "kept", folder / "kept/x", "1", Publish::kFirstWins).ok());
  REQUIRE(::symlink((folder / "kept").c_str(), (folder / "a/link").c_str()) == 0);
  CHECK(files->remove_tree(folder / "a").ok());
  CHECK(files->info(folder / "kept/x").exists);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto held = files->try_lock(folder / "lock");
    ::_exit(held.ok() && held.value() != nullptr ? 0 : 1);  // without letting go
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(files->try_lock(folder / "lock").value() != nullptr);
}

}  // namespace attnloom
