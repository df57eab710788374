// SPDX-License-Identifier: Apache-2.0
#include "engine/compile_pool.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/temp_directory.h"
#include "engine/compile_limit.h"
#include "engine/stubs.h"

namespace attnloom {
namespace {

std::function<int()> always(int limit) {
  return [limit] { return limit; };
}

void write(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path) << text;
}

TEST_CASE("two jobs run at the same time, and never three where the limit is two") {
  std::barrier both(2);  // a job alone would wait for ever
  std::atomic<int> inside{0};
  std::atomic<int> most{0};
  std::atomic<int> done{0};
  Gate all;
  CompilePool pool(always(2));
  for (int i = 0; i < 8; ++i) {
    CHECK(pool.submit(Priority::kRequest, [&] {
      const int now = ++inside;
      int seen = most;
      while (now > seen && !most.compare_exchange_weak(seen, now)) {
      }
      both.arrive_and_wait();
      --inside;
      if (++done == 8) all.open();
    }) != 0);
  }
  all.wait();
  CHECK(most == 2);
}

TEST_CASE("requests go before what is prewarmed, in the order they came; a job can be hastened") {
  Gate gate;
  Gate last;
  std::string order;
  CompilePool pool(always(1));
  pool.submit(Priority::kPrewarm, [&] { gate.wait(); });
  gate.wait_for_waiters(1);
  pool.submit(Priority::kPrewarm, [&] {
    order += 'a';
    last.open();
  });
  pool.submit(Priority::kRequest, [&] { order += 'b'; });
  const auto hastened = pool.submit(Priority::kPrewarm, [&] { order += 'c'; });
  pool.submit(Priority::kRequest, [&] { order += 'd'; });
  CHECK(pool.figures().waiting == 4);
  CHECK(pool.figures().running == 1);
  pool.hasten(hastened);
  gate.open();
  last.wait();
  CHECK(order == "bcda");
}

TEST_CASE("a job that has not begun can be withdrawn, one that runs cannot") {
  Gate gate;
  bool ran = false;
  CompilePool pool(always(1));
  const auto running = pool.submit(Priority::kRequest, [&] { gate.wait(); });
  gate.wait_for_waiters(1);
  const auto waiting = pool.submit(Priority::kRequest, [&] { ran = true; });
  CHECK(pool.withdraw(waiting));
  CHECK_FALSE(pool.withdraw(waiting));
  CHECK_FALSE(pool.withdraw(running));
  gate.open();
  pool.stop();
  CHECK_FALSE(ran);
}

TEST_CASE("stop drops what waits, waits for what runs, and takes nothing more") {
  Gate gate;
  std::atomic<int> ran{0};
  CompilePool pool(always(1));
  pool.submit(Priority::kRequest, [&] {
    gate.wait();
    ++ran;
  });
  gate.wait_for_waiters(1);
  pool.submit(Priority::kRequest, [&] { ++ran; });
  std::jthread opener([&] {
    while (pool.figures().waiting > 0) std::this_thread::yield();
    gate.open();
  });
  pool.stop();
  CHECK(ran == 1);
  CHECK(pool.submit(Priority::kRequest, [&] { ++ran; }) == 0);
  CHECK(ran == 1);
}

// B105.
TEST_CASE("a child forked from a process with a pool runs its own jobs, whatever the parent ran") {
  for (const bool while_running : {false, true}) {
    Gate gate;
    Gate over;
    CompilePool pool(always(1));
    pool.submit(Priority::kRequest, [&] {
      if (while_running) gate.wait();
      over.open();
    });
    if (while_running)
      gate.wait_for_waiters(1);
    else
      over.wait();
    const pid_t child = ::fork();
    if (child == 0) {
      pool.abandon_after_fork();
      Gate done;
      if (pool.submit(Priority::kRequest, [&] { done.open(); }) == 0) ::_exit(1);
      done.wait();
      pool.stop();
      ::_exit(0);
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    CHECK(status == 0);
    CHECK_FALSE(pool.abandon_after_fork());
    gate.open();
  }
}

TEST_CASE("compiles at a time follow cores, quotas and free memory, and are at least one") {
  const TempDirectory root;
  const int by_cores = compile_limit(root / "nowhere");
  CHECK(by_cores >= 1);
  CHECK(by_cores <= kMostCompiles);
  const auto limit = [&] { return compile_limit(root / ""); };
  const std::string group = root / "sys/fs/cgroup/outer/inner";
  write(root / "proc/self/cgroup", "0::/outer/inner\n");
  write(root / "proc/meminfo", "MemTotal: 99999999 kB\nMemAvailable: 270000 kB\n");
  CHECK(limit() == 1);
  write(root / "proc/meminfo", "MemTotal: 99999999 kB\nMemAvailable: 99999999 kB\n");
  CHECK(limit() == by_cores);
  // 300 MiB are left of the outer group: one compile, though the inner one has no limit.
  write(group + "/memory.max", "max\n");
  write(group + "/memory.current", "1000\n");
  write(root / "sys/fs/cgroup/outer/memory.max", "1073741824\n");
  write(root / "sys/fs/cgroup/outer/memory.current", "759169024\n");
  CHECK(limit() == 1);
  // Of what is used 300 MiB are pages of files that nobody looks at: 600 MiB are free, two
  // compiles.
  write(root / "sys/fs/cgroup/outer/memory.stat", "anon 5\ninactive_file 314572800\n");
  CHECK(limit() == std::min(by_cores, 2));
  write(group + "/cpu.max", "150000 100000\n");
  CHECK(limit() == std::min(by_cores, 2));
  write(group + "/cpu.max", "50000 100000\n");
  CHECK(limit() == 1);
  write(group + "/cpu.max", "max 100000\n");
  CHECK(limit() == std::min(by_cores, 2));
  // The first version of control groups.
  write(root / "sys/fs/cgroup/memory/memory.limit_in_bytes", "104857600\n");
  write(root / "sys/fs/cgroup/memory/memory.usage_in_bytes", "0\n");
  CHECK(limit() == 1);
}

}  // namespace
}  // namespace attnloom
