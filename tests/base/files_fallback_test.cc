// SPDX-License-Identifier: Apache-2.0
// Publication on a file system without hard links, played by a filter on system calls in a child
// process.
#include <sys/syscall.h>

#include <catch2/catch.hpp>
#include <cerrno>

#include "base/files.h"
#include "tests/base/child_process.h"
#include "tests/base/temp_directory.h"

namespace attnloom {
namespace {

constexpr int kNoFilter = 77;

bool forbid_links(int error) {
#ifdef SYS_link
  if (!forbid(SYS_link, error)) return false;
#endif
  return forbid(SYS_linkat, error);
}

void check_without_links(bool without_noreplace) {
  const TempDirectory root;
  const auto files = make_real_file_system();
  const int outcome = in_child([&] {
    if (!forbid_links(EPERM)) return kNoFilter;
    if (without_noreplace && !forbid(SYS_renameat2, EINVAL)) return kNoFilter;
    if (!files->publish(root.path(), root / "x", "one", Publish::kFirstWins).ok()) return 1;
    if (!files->publish(root.path(), root / "x", "two", Publish::kFirstWins).ok()) return 2;
    return 0;
  });
  if (outcome == kNoFilter) {
    WARN("this machine allows no system call filter: not tested");
    return;
  }
  CHECK(outcome == 0);
  CHECK(files->read(root / "x").value() == "one");
  CHECK(files->list(root.path()).value() == std::vector<std::string>{"x"});
}

TEST_CASE("Without hard links the first still wins") {
  check_without_links(false);
}
TEST_CASE("Without RENAME_NOREPLACE as well") {
  check_without_links(true);
}

TEST_CASE("A link that fails for want of space leaves nothing") {
  const TempDirectory root;
  const auto files = make_real_file_system();
  const int outcome = in_child([&] {
    if (!forbid_links(ENOSPC)) return kNoFilter;
    const Status status = files->publish(root.path(), root / "x", "one", Publish::kFirstWins);
    return status.code == Code::kCacheIo && status.remedy == "free some space" ? 0 : 1;
  });
  if (outcome == kNoFilter) return;
  CHECK(outcome == 0);
  CHECK(files->list(root.path()).value().empty());
}

}  // namespace
}  // namespace attnloom
