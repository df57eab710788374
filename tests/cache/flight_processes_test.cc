// SPDX-License-Identifier: Apache-2.0
// One compile a key on a node: processes, locks and processes that are killed.
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <new>
#include <optional>
#include <thread>

#include "../compile/nvrtc_for_tests.h"
#include "cache/entry.h"
#include "cache/flight.h"
#include "cache_for_tests.h"

namespace attnloom {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr int kProcesses = 8;

// What forked processes tell each other.
struct Shared {
  std::atomic<int> ready{0};
  std::atomic<bool> go{false};
  std::atomic<int> inside{0};
  std::atomic<int> most_inside{0};
  std::atomic<int> compiles{0};
};

class SharedMemory {
 public:
  SharedMemory()
      : memory_(::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                       -1, 0)) {
    REQUIRE(memory_ != MAP_FAILED);
    new (memory_) Shared;
  }
  ~SharedMemory() { ::munmap(memory_, sizeof(Shared)); }
  Shared* operator->() const { return static_cast<Shared*>(memory_); }

 private:
  void* memory_;
};

template <class Body>
pid_t fork_child(const Body& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  REQUIRE(child > 0);
  return child;
}

int exit_of(pid_t child) {
  int status = -1;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void wait_until(const std::function<bool()>& done) {
  while (!done()) std::this_thread::sleep_for(milliseconds(1));
}

NodeLock lock_for(const std::string& folder, milliseconds patience,
                  const std::function<bool()>& done = {},
                  std::vector<std::string>* notices = nullptr) {
  return NodeLock::acquire(folder + "/locks", "key", patience, done,
                           [notices](const std::string& line) {
                             if (notices != nullptr) notices->push_back(line);
                           });
}

// What a process does on a miss, 0 when it got the right artifact.
int process(const std::string& folder, const SharedMemory& shared, Toolchain& toolchain,
            const Source& source, const std::string& want_cubin) {
  const auto files = make_real_file_system();
  Store store(*files, {.root = folder + "/cache"});
  const std::string key = request_key(source);
  const auto present = [&] { return store.find(key, source.target, {}, 0).has_value(); };
  ++shared->ready;
  wait_until([&] { return shared->go.load(); });
  const NodeLock lock = lock_for(folder, milliseconds(20'000), present);
  if (const auto found = store.find(key, source.target, {}, 0))
    return found->artifact.cubin == want_cubin ? 0 : 1;
  ++shared->compiles;
  const auto artifact = toolchain.compile(source);
  if (!artifact.ok()) return 2;
  if (!store.publish(key, source, *artifact).ok()) return 3;
  return artifact->cubin == want_cubin ? 0 : 4;
}

void check_directory(const std::string& folder, const Source& source) {
  int entries = 0;
  for (const auto& item : fs::recursive_directory_iterator(folder + "/cache/v1/k")) {
    if (item.is_directory()) continue;
    ++entries;
    const auto bytes = make_real_file_system()->read(item.path().string());
    REQUIRE(bytes.ok());
    const auto entry = decode_entry(*bytes, Unpack::kAll);
    REQUIRE(entry.ok());
    CHECK(entry->request_key == request_key(source));
  }
  CHECK(entries == 1);
}

// A compiler that takes long enough to be killed at.
class SlowToolchain : public FakeToolchain {
 public:
  Result<Artifact> compile(const Source& source) override {
    std::this_thread::sleep_for(milliseconds(10));
    return FakeToolchain::compile(source);
  }
};

}  // namespace

TEST_CASE("8 processes, one key, one of them killed: the others agree, one whole entry is left") {
  const Source source = fake_source();
  const std::string want = fake_artifact(source).cubin;
  for (int round = 0; round < 12; ++round) {
    INFO("round " << round);
    const TempFolder folder;
    const SharedMemory shared;
    std::vector<pid_t> children;
    for (int i = 0; i < kProcesses; ++i) {
      children.push_back(fork_child([&] {
        SlowToolchain toolchain;
        return process(folder.path(), shared, toolchain, source, want);
      }));
    }
    wait_until([&] { return shared->ready == kProcesses; });
    shared->go = true;
    const auto victim = static_cast<std::size_t>(round % kProcesses);
    std::this_thread::sleep_for(milliseconds(2 * round));
    ::kill(children[victim], SIGKILL);
    for (std::size_t i = 0; i < children.size(); ++i) {
      const int status = exit_of(children[i]);
      CHECK((status == 0 || (i == victim && status == 128 + SIGKILL)));
    }
    // One more for a leader that was killed before it published.
    CHECK(shared->compiles <= 2);
    check_directory(folder.path(), source);
  }
}

TEST_CASE("8 processes without any lock all agree too") {
  const TempFolder folder;
  const SharedMemory shared;
  const Source source = fake_source();
  std::vector<pid_t> children;
  for (int i = 0; i < kProcesses; ++i) {
    children.push_back(fork_child([&] {
      FakeToolchain toolchain;
      const auto files = make_real_file_system();
      Store store(*files, {.root = folder.root()});
      ++shared->ready;
      wait_until([&] { return shared->go.load(); });
      const auto artifact = toolchain.compile(source);
      return store.publish(request_key(source), source, *artifact).ok() ? 0 : 1;
    }));
  }
  wait_until([&] { return shared->ready == kProcesses; });
  shared->go = true;
  for (const pid_t child : children) CHECK(exit_of(child) == 0);
  check_directory(folder.path(), source);
  CHECK(fs::is_empty(folder.root() + "/v1/tmp"));
}

TEST_CASE("8 processes with the real compiler: one compile") {
  const TempFolder folder;
  const SharedMemory shared;
  const Source source = trivial_source();
  std::string want;
  // In a child, so that the compiler's threads and memory are not forked along.
  const pid_t first = fork_child([&] {
    const auto artifact = test_toolchain()->compile(source);
    if (!artifact.ok()) return 1;
    return make_real_file_system()
                   ->publish(folder.path(), folder.path() + "/want", artifact->cubin,
                             Publish::kReplace)
                   .ok()
               ? 0
               : 2;
  });
  REQUIRE(exit_of(first) == 0);
  want = *make_real_file_system()->read(folder.path() + "/want");
  std::vector<pid_t> children;
  for (int i = 0; i < kProcesses; ++i) {
    children.push_back(fork_child([&] {
      const auto toolchain = test_toolchain();
      return process(folder.path(), shared, *toolchain, source, want);
    }));
  }
  wait_until([&] { return shared->ready == kProcesses; });
  shared->go = true;
  for (const pid_t child : children) CHECK(exit_of(child) == 0);
  CHECK(shared->compiles == 1);
  check_directory(folder.path(), source);
}

TEST_CASE("the lock of a process that was killed is free at once") {
  const TempFolder folder;
  const SharedMemory shared;
  const pid_t holder = fork_child([&] {
    const NodeLock lock = lock_for(folder.path(), milliseconds(1000));
    shared->ready = lock.held() ? 1 : 2;
    while (true) ::pause();
    return 0;
  });
  wait_until([&] { return shared->ready != 0; });
  REQUIRE(shared->ready == 1);
  ::kill(holder, SIGKILL);
  exit_of(holder);
  std::vector<std::string> notices;
  CHECK(lock_for(folder.path(), milliseconds(0), {}, &notices).held());
  CHECK(notices.empty());
}

TEST_CASE(
    "a holder that lives on is named by path and pid, and the waiter goes on without the lock") {
  const TempFolder folder;
  const SharedMemory shared;
  const pid_t holder = fork_child([&] {
    const NodeLock lock = lock_for(folder.path(), milliseconds(1000));
    shared->ready = 1;
    while (true) ::pause();
    return 0;
  });
  wait_until([&] { return shared->ready == 1; });
  std::vector<std::string> notices;
  CHECK_FALSE(lock_for(folder.path(), milliseconds(60), {}, &notices).held());
  REQUIRE(notices.size() == 1);
  CHECK(notices[0].find(folder.path() + "/locks/") == 0);
  CHECK(notices[0].find("process " + std::to_string(holder) + " ") != std::string::npos);
  // One who only waits for the entry is let go as soon as it is there.
  int asked = 0;
  CHECK_FALSE(lock_for(
                  folder.path(), milliseconds(60'000), [&] { return ++asked == 2; }, &notices)
                  .held());
  CHECK(notices.size() == 1);
  ::kill(holder, SIGKILL);
  exit_of(holder);
}

TEST_CASE("never two holders, and the lock's file stays") {
  const TempFolder folder;
  const SharedMemory shared;
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    children.push_back(fork_child([&] {
      ++shared->ready;
      wait_until([&] { return shared->go.load(); });
      for (int round = 0; round < 5; ++round) {
        const NodeLock lock = lock_for(folder.path(), milliseconds(20'000));
        if (!lock.held()) return 1;
        const int inside = ++shared->inside;
        if (inside > shared->most_inside) shared->most_inside = inside;
        std::this_thread::sleep_for(milliseconds(2));
        --shared->inside;
      }
      return 0;
    }));
  }
  wait_until([&] { return shared->ready == 4; });
  shared->go = true;
  for (const pid_t child : children) CHECK(exit_of(child) == 0);
  CHECK(shared->most_inside == 1);
  CHECK(std::distance(fs::directory_iterator(folder.path() + "/locks"), {}) == 1);
}

TEST_CASE(
    "whoever gets the lock of a file that was deleted meanwhile tries again with the new one") {
  const TempFolder folder;
  std::optional<NodeLock> first = lock_for(folder.path(), milliseconds(0));
  std::optional<NodeLock> third;
  REQUIRE(first->held());
  // The second has the old file open and waits; it is deleted, the first lets go, a third makes a
  // new file.
  const auto delete_once = [&] {
    if (!first) return false;
    for (const auto& item : fs::directory_iterator(folder.path() + "/locks"))
      fs::remove(item.path());
    first.reset();
    third.emplace(lock_for(folder.path(), milliseconds(0)));
    CHECK(third->held());
    return false;
  };
  std::vector<std::string> notices;
  CHECK_FALSE(lock_for(folder.path(), milliseconds(100), delete_once, &notices).held());
  CHECK(notices.size() == 1);
  third.reset();
  CHECK(lock_for(folder.path(), milliseconds(0)).held());
}

TEST_CASE("a child forked by the holder does not keep the lock") {
  const TempFolder folder;
  const SharedMemory shared;
  pid_t child = -1;
  {
    const NodeLock lock = lock_for(folder.path(), milliseconds(0));
    REQUIRE(lock.held());
    child = fork_child([] {
      while (true) ::pause();
      return 0;
    });
  }
  CHECK(lock_for(folder.path(), milliseconds(0)).held());
  ::kill(child, SIGKILL);
  exit_of(child);
}

TEST_CASE("a lock directory of somebody else is not used") {
  const TempFolder folder;
  std::vector<std::string> notices;
  fs::create_directory(folder.path() + "/real");
  fs::create_directory_symlink(folder.path() + "/real", folder.path() + "/locks");
  CHECK_FALSE(lock_for(folder.path(), milliseconds(0), {}, &notices).held());
  CHECK(notices.size() == 1);
  CHECK(fs::is_empty(folder.path() + "/real"));
}

}  // namespace attnloom
