// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include "base/files.h"

namespace attnloom {
namespace {

using Names = std::vector<std::string>;

TEST_CASE("The memory file system behaves as a disk") {
  const auto files = make_memory_file_system();
  CHECK_FALSE(files->publish("/c", "/c/x", "1", Publish::kFirstWins).ok());
  REQUIRE(files->make_directories("/c/tmp").ok());
  REQUIRE(files->publish("/c/tmp", "/c/x", "one", Publish::kFirstWins).ok());
  REQUIRE(files->publish("/c/tmp", "/c/x", "two", Publish::kFirstWins).ok());
  CHECK(files->read("/c/x").value() == "one");
  REQUIRE(files->publish("/c/tmp", "/c/x", "two", Publish::kReplace).ok());
  CHECK(files->read("/c/x").value() == "two");
  CHECK(files->list("/c").value() == Names{"tmp", "x"});
  CHECK(files->info("/c/x").bytes == 3);
  CHECK(files->info("/c/x").mode == 0600);
  CHECK(files->info("/c").mode == 0700);
  CHECK_FALSE(files->read("/c").ok());
  REQUIRE(files->rename("/c", "/d").ok());
  CHECK(files->read("/d/x").value() == "two");
  CHECK_FALSE(files->info("/c/x").exists);
  CHECK(files->remove("/d/x").ok());
  CHECK(files->remove("/d/x").ok());
  CHECK_FALSE(files->remove("/d").ok());
}

TEST_CASE("A full memory file system fails and keeps what it had") {
  const auto files = make_memory_file_system(5);
  REQUIRE(files->make_directories("/c").ok());
  REQUIRE(files->publish("/c", "/c/a", "12345", Publish::kFirstWins).ok());
  CHECK(files->publish("/c", "/c/b", "6", Publish::kFirstWins).code == Code::kCacheIo);
  CHECK(files->publish("/c", "/c/a", "6", Publish::kReplace).code == Code::kCacheIo);
  CHECK(files->list("/c").value() == Names{"a"});
  CHECK(files->read("/c/a").value() == "12345");
}

}  // namespace
}  // namespace attnloom
