// SPDX-License-Identifier: Apache-2.0
// Publication on a file system without hard links, played by a filter on system calls in a child
// process.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <cstddef>

#include "base/files.h"
#include "tests/base/temp_directory.h"

namespace attnloom {
namespace {

constexpr int kNoFilter = 77;

// Makes the system call fail with `error` for the rest of this process.
bool forbid(long call, int error) {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(call), 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(error)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{sizeof program / sizeof program[0], program};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) == 0;
}

bool forbid_links(int error) {
#ifdef SYS_link
  if (!forbid(SYS_link, error)) return false;
#endif
  return forbid(SYS_linkat, error);
}

// Runs `body` in a child; its value is the exit code.
template <class Body>
int in_child(Body body) {
  const pid_t pid = ::fork();
  REQUIRE(pid >= 0);
  if (pid == 0) ::_exit(body());
  int status = 0;
  REQUIRE(::waitpid(pid, &status, 0) == pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
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
