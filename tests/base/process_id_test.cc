// SPDX-License-Identifier: Apache-2.0
#include "base/process_id.h"

#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>

namespace attnloom {
namespace {

bool child_knows_itself(pid_t parent) {
  return process_id() == getpid() && process_id() != parent;
}

// 0 where the child and its own child see their own numbers.
int run_in_child(pid_t parent) {
  if (!child_knows_itself(parent)) return 1;
  const pid_t self = getpid();
  const pid_t grandchild = fork();
  if (grandchild == 0) _exit(child_knows_itself(self) ? 0 : 2);
  int status = 0;
  waitpid(grandchild, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 3;
}

int exit_code(pid_t child) {
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_CASE("A forked process does not take itself for its parent") {
  const pid_t parent = process_id();
  CHECK(parent == getpid());
  const pid_t child = fork();
  if (child == 0) _exit(run_in_child(parent));
  CHECK(exit_code(child) == 0);
  CHECK(process_id() == parent);
}

// No handler of pthread_atfork runs for it.
TEST_CASE("Nor does one that was cloned by a bare system call") {
  const pid_t parent = process_id();
  const auto child = static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, 0));
  if (child == 0) _exit(child_knows_itself(parent) ? 0 : 1);
  CHECK(exit_code(child) == 0);
}

}  // namespace
}  // namespace attnloom
