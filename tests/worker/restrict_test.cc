// SPDX-License-Identifier: Apache-2.0
// Each part of the confinement in a child of its own, which tries what it may no longer do.
#include "tools/worker/restrict.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <fstream>
#include <functional>
#include <thread>

#include "../base/temp_directory.h"

namespace attnloom::worker {
namespace {

constexpr int kAllAsWanted = 0;

#ifdef ATTNLOOM_SANITIZED
constexpr bool kMemoryIsBounded = false;
#else
constexpr bool kMemoryIsBounded = true;
#endif

// The exit status of a child that runs `call`; 128 + signal.
int in_child(const std::function<int()>& call) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(call());
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

// The place of the first attempt that did not fail with `error`, counted from 1.
int first_that_passes(std::initializer_list<std::function<long()>> attempts, int error) {
  int place = 0;
  for (const std::function<long()>& attempt : attempts) {
    ++place;
    errno = 0;
    if (attempt() >= 0 || errno != error) return place;
  }
  return kAllAsWanted;
}

bool no_new_privileges() {
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0;
}

bool without_landlock() {
  if (landlock_version() > 0) return false;
  WARN("SKIPPED, nothing is shown: this kernel has no Landlock");
  return true;
}

Restriction usual() {
  return {.address_space_bytes = std::uint64_t{1} << 30, .cpu_seconds = 60};
}

}  // namespace

TEST_CASE("closed files cannot be read, made, changed, removed or run") {
  if (without_landlock()) return;
  const TempDirectory folder;
  const std::string there = folder.path() + "/there";
  const std::string made = folder.path() + "/made";
  std::ofstream(there) << "text";
  const auto attempts = [&] {
    return first_that_passes(
        {[] { return ::open("/etc/passwd", O_RDONLY); },
         [] { return ::open("/", O_RDONLY | O_DIRECTORY); },
         [&] { return ::open(there.c_str(), O_RDONLY); },
         [&] { return ::open(there.c_str(), O_WRONLY); },
         [&] { return ::open(made.c_str(), O_WRONLY | O_CREAT, 0600); },
         [&] { return ::mkdir(made.c_str(), 0700); }, [&] { return ::unlink(there.c_str()); },
         [&] { return ::symlink("/", made.c_str()); },
         [] { return ::execl("/bin/true", "true", nullptr); }},
        EACCES);
  };
  CHECK(in_child(attempts) == 1);  // they are about something: unconfined, the first passes
  CHECK(in_child([&] {
          if (!no_new_privileges() || !close_files(landlock_version()).ok()) return 99;
          return attempts();
        }) == kAllAsWanted);
  CHECK_FALSE(std::ifstream(made).good());
}

TEST_CASE("refused calls: sockets, programs, processes, tracing, shared memory, modes of files") {
  const TempDirectory folder;
  const std::string there = folder.path() + "/there";
  std::ofstream(there) << "text";
  const pid_t parent = ::getpid();
  const auto attempts = [&] {
    return first_that_passes(
        {[] { return ::socket(AF_INET, SOCK_STREAM, 0); },
         [] { return ::socket(AF_INET, SOCK_DGRAM, 0); },
         [] { return ::socket(AF_UNIX, SOCK_STREAM, 0); },
         [] { return ::socket(AF_NETLINK, SOCK_RAW, 0); },
         [] { return ::execl("/bin/true", "true", nullptr); },
         [] { return ::syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr); },
         [&] { return ::kill(parent, 0); },
         [&] { return ::syscall(SYS_tgkill, parent, parent, 0); },
         [&] { return ::syscall(SYS_prlimit64, parent, RLIMIT_AS, nullptr, nullptr); },
         [] { return ::unshare(CLONE_NEWUSER); },
         [] { return ::shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600); },
         [] { return ::memfd_create("x", 0); }, [&] { return ::chmod(there.c_str(), 0777); },
         [] { return ::syscall(425, 1, nullptr); }},
        EPERM);
  };
  CHECK(in_child(attempts) == 1);
  CHECK(in_child([&] {
          if (!no_new_privileges() || !filter_calls().ok()) return 99;
          return attempts();
        }) == kAllAsWanted);
}

TEST_CASE("what the compiler needs goes on: threads, memory, its own limits and abort") {
  const auto threads = [] {
    int seen = 0;
    std::thread([&] { seen = 1; }).join();
    rlimit stack = {};
    return seen == 1 && ::getrlimit(RLIMIT_STACK, &stack) == 0 ? kAllAsWanted : 1;
  };
  CHECK(in_child([&] { return no_new_privileges() && filter_calls().ok() ? threads() : 99; }) ==
        kAllAsWanted);
  CHECK(in_child([]() -> int {
          std::signal(SIGABRT, SIG_DFL);  // Catch2's own would report this child's end
          if (no_new_privileges() && filter_calls().ok()) std::abort();
          return 99;
        }) == 128 + SIGABRT);
}

TEST_CASE("resources: no descriptor, no memory beyond the bound, an end of processor time") {
  CHECK(in_child([] {
          ::syscall(SYS_close_range, 3, ~0u, 0);
          if (!limit_resources(usual()).ok()) return 99;
          return first_that_passes(
              {[] { return ::open("/etc/passwd", O_RDONLY); },
               [] { return ::socket(AF_INET, SOCK_STREAM, 0); }, [] { return ::dup(0); }},
              EMFILE);
        }) == kAllAsWanted);
  CHECK(in_child([] {
          if (!limit_resources(usual()).ok()) return 99;
          const auto take = [](std::size_t bytes) {
            return ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) !=
                   MAP_FAILED;
          };
          return take(std::size_t{512} << 20) && !take(std::size_t{1} << 30) ? 0 : 1;
        }) == (kMemoryIsBounded ? kAllAsWanted : 1));
  CHECK(in_child([]() -> int {
          Restriction short_time = usual();
          short_time.cpu_seconds = 1;
          if (!limit_resources(short_time).ok()) return 99;
          for (;;) static_cast<void>(::getppid());
        }) == 128 + SIGXCPU);
}

TEST_CASE("all of it: root has no power left, and limits cannot be raised again") {
  if (without_landlock()) return;
  CHECK(in_child([] {
          if (!restrict_process(usual()).ok()) return 99;
          const rlimit more = {1 << 20, 1 << 20};
          return first_that_passes({[&] { return ::setrlimit(RLIMIT_NOFILE, &more); },
                                    [&] {
                                      const rlimit large = {RLIM_INFINITY, RLIM_INFINITY};
                                      return ::setrlimit(RLIMIT_AS, &large);
                                    },
                                    [] { return ::socket(AF_INET, SOCK_STREAM, 0); },
                                    [] { return ::mount("none", "/tmp", "tmpfs", 0, nullptr); }},
                                   EPERM);
        }) == kAllAsWanted);
}

TEST_CASE("all of it: files that need no descriptor are closed too") {
  if (without_landlock()) return;
  const TempDirectory folder;
  const std::string made = folder.path() + "/made";
  const auto attempts = [&] {
    return first_that_passes({[&] { return ::mkdir(made.c_str(), 0700); },
                              [&] { return ::rmdir(folder.path().c_str()); }},
                             EACCES);
  };
  CHECK(in_child([&] { return restrict_process(usual()).ok() ? attempts() : 99; }) == kAllAsWanted);
  CHECK(in_child(attempts) == 1);
}

TEST_CASE("a kernel without Landlock is refused, or weaker when that was said") {
  const auto restrict_here = [&](bool weak) {
    return in_child([&] {
      Restriction restriction = usual();
      restriction.landlock_version = 0;
      restriction.weak_sandbox = weak;
      return static_cast<int>(restrict_process(restriction).code);
    });
  };
  CHECK(restrict_here(false) == static_cast<int>(Code::kUntrusted));
  CHECK(restrict_here(true) == static_cast<int>(Code::kOk));
}

TEST_CASE("an older Landlock is asked for what it knows") {
  for (int version = 1; version <= landlock_version(); ++version) {
    CHECK(in_child([&] {
            if (!no_new_privileges() || !close_files(version).ok()) return 99;
            return first_that_passes({[] { return ::open("/etc/passwd", O_RDONLY); }}, EACCES);
          }) == kAllAsWanted);
  }
}

}  // namespace attnloom::worker
