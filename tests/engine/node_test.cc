// SPDX-License-Identifier: Apache-2.0
// One compile a key on a node: 8 cold processes of 16 threads each, over one root or two, with a
// compiler that leaves a line in a file for each compile.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <fstream>
#include <new>
#include <set>
#include <thread>

#include "base/temp_directory.h"
#include "cache/flight.h"
#include "compile/nvrtc_for_tests.h"
#include "engine/stubs.h"

namespace attnloom {
namespace {

constexpr int kProcesses = 8;
constexpr int kThreads = 16;

// A counter that forked processes share.
class Barrier {
 public:
  Barrier()
      : memory_(::mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
    REQUIRE(memory_ != MAP_FAILED);
    new (memory_) std::atomic<int>(0);
  }
  ~Barrier() { ::munmap(memory_, sizeof(std::atomic<int>)); }
  void arrive_and_wait(int count) {
    auto& arrived = *static_cast<std::atomic<int>*>(memory_);
    ++arrived;
    while (arrived < count) std::this_thread::yield();
  }

 private:
  void* memory_;
};

// One line a compile, whole whoever else writes.
class RecordingToolchain : public Toolchain {
 public:
  RecordingToolchain(std::unique_ptr<Toolchain> inner, std::string file)
      : inner_(std::move(inner)), file_(std::move(file)) {}
  Result<Fingerprint> fingerprint() override { return inner_->fingerprint(); }
  Result<Artifact> compile(const Source& source) override {
    const std::string line = to_hex(sha256(source.text)) + "\n";
    const int file = ::open(file_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    const bool written =
        ::write(file, line.data(), line.size()) == static_cast<ssize_t>(line.size());
    ::close(file);
    if (!written) return make_error(Code::kInternal, "", "no record of the compile");
    return inner_->compile(source);
  }

 private:
  std::unique_ptr<Toolchain> inner_;
  std::string file_;
};

struct Node {
  TempDirectory folder;
  Barrier barrier;
  std::function<std::unique_ptr<Toolchain>()> compiler;
  int roots = 1;

  std::vector<std::string> compiled() const {
    std::ifstream file(folder / "compiles");
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
  }

  // What one process does; 0 when every thread got every kernel.
  int process(int number, const std::vector<std::string>& specs) {
    EngineOptions options;
    options.files = make_real_file_system();
    options.store.root = folder / ("cache" + std::to_string(number % roots));
    for (int i = 0; i < roots; ++i)
      if (i != number % roots)
        options.store.read_only.push_back(folder / ("cache" + std::to_string(i)));
    options.lock_directory = folder / "locks";
    options.toolchain = std::make_unique<RecordingToolchain>(compiler(), folder / "compiles");
    Engine engine(std::move(options));
    barrier.arrive_and_wait(kProcesses);
    std::atomic<int> failures{0};
    {
      std::vector<std::jthread> threads;
      for (int t = 0; t < kThreads; ++t) {
        threads.emplace_back([&, t] {
          // Each thread in an order of its own.
          for (std::size_t i = 0; i < specs.size(); ++i) {
            const auto kernels =
                engine.open(specs[(i + static_cast<std::size_t>(5 * t + number)) % specs.size()]);
            if (!kernels.ok() || !kernels.value()->prepare().ok()) ++failures;
          }
        });
      }
    }
    return failures == 0 ? 0 : 1;
  }

  void run(const std::vector<std::string>& specs) {
    std::vector<pid_t> children;
    for (int i = 0; i < kProcesses; ++i) {
      children.push_back(::fork());
      REQUIRE(children.back() >= 0);
      if (children.back() == 0) ::_exit(process(i, specs));
    }
    for (const pid_t child : children) {
      int status = -1;
      ::waitpid(child, &status, 0);
      CHECK(status == 0);
    }
  }
};

std::unique_ptr<Toolchain> stub() {
  return std::make_unique<StubToolchain>(std::make_shared<CompilerScript>());
}

std::vector<std::string> specs(int count) {
  std::vector<std::string> made;
  for (int i = 0; i < count; ++i)
    made.push_back(
        one_kernel_spec(R"("logits_transform": "return logits + )" + std::to_string(i) + R"(.0f;")",
                        R"("target": "sm_90a", )"));
  return made;
}

void check_one_compile_a_key(const Node& node, std::size_t keys) {
  const std::vector<std::string> lines = node.compiled();
  CHECK(lines.size() == keys);
  CHECK(std::set<std::string>(lines.begin(), lines.end()).size() == keys);
}

TEST_CASE("8 cold processes of 16 threads compile each key once: one key, and 32") {
  for (const int keys : {1, 32}) {
    Node node;
    node.compiler = stub;
    node.run(specs(keys));
    check_one_compile_a_key(node, static_cast<std::size_t>(keys));
  }
}

TEST_CASE("so they do over two roots that read each other and share the lock directory") {
  for (const int keys : {1, 32}) {
    Node node;
    node.compiler = stub;
    node.roots = 2;
    node.run(specs(keys));
    check_one_compile_a_key(node, static_cast<std::size_t>(keys));
  }
}

// B127: a line with the holder while it waits, one where it goes on alone, then those of the
// compile.
TEST_CASE("who waits for another process's compile is told its pid, and after a while goes on") {
  const TempDirectory folder;
  StubEngine one({.root = "", .lock_directory = folder / "locks", .more = [](EngineOptions& o) {
                    o.say_who_holds = std::chrono::milliseconds(40);
                    o.lock_patience = std::chrono::milliseconds(80);
                  }});
  const auto kernels = one.open(one_kernel_spec("", R"("target": "sm_90a", )"));
  const std::string key = kernels->request_key(0).value();
  int held[2];
  REQUIRE(::pipe(held) == 0);
  const pid_t holder = ::fork();
  REQUIRE(holder >= 0);
  if (holder == 0) {
    const NodeLock lock =
        NodeLock::acquire(folder / "locks", key, std::chrono::milliseconds(0), {}, {});
    const char byte = lock.held() ? 'y' : 'n';
    if (::write(held[1], &byte, 1) != 1) ::_exit(1);
    while (true) ::pause();
  }
  char byte = 0;
  REQUIRE(::read(held[0], &byte, 1) == 1);
  REQUIRE(byte == 'y');
  REQUIRE(kernels->prepare().ok());
  ::kill(holder, SIGKILL);
  ::waitpid(holder, nullptr, 0);
  ::close(held[0]);
  ::close(held[1]);
  const std::string by = "is held by process " + std::to_string(holder) + " for more than 40 ms";
  REQUIRE(one.log.size() == 5);
  CHECK(one.log[0].find("device: ") == 0);
  CHECK(one.log[1].find("waiting for another process that compiles the same kernel: " +
                        folder / "locks/") == 0);
  CHECK(one.log[1].find(by) != std::string::npos);
  CHECK(one.log[2].find("compiling without a lock on this node: ") == 0);
  CHECK(one.log[2].find(by) != std::string::npos);
  CHECK(one.log[3] == "compiling test attention_mma 16x64 for sm_90a, request_key " + key);
  CHECK(one.log[4].find("compiled test attention_mma 16x64 for sm_90a in ") == 0);
}

// B105.
TEST_CASE("a child forked from an engine that compiled compiles with threads of its own") {
  Gate gate;
  StubEngine one({.root = "", .has_device = false});
  const std::string target = R"("target": "sm_90a", )";
  REQUIRE(one.open(one_kernel_spec("", target))->prepare().ok());
  one.compiler->before = [&] { gate.wait(); };
  const auto in_flight = one.open(one_kernel_spec("", target, 128));
  REQUIRE_FALSE(in_flight->acquire(0, nullptr, {.policy = Policy::kAsync}).ok());
  gate.wait_for_waiters(1);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    one.compiler->before = {};
    const bool other = one.open(one_kernel_spec(R"("logits_transform": "return logits;")", target))
                           ->prepare()
                           .ok();
    const bool same = in_flight->acquire(0).ok();
    ::_exit(other && same ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
  gate.open();
  CHECK(in_flight->acquire(0).ok());
}

TEST_CASE("8 cold processes of 16 threads with the real compiler: one nvrtcCompileProgram") {
  Node node;
  node.compiler = test_toolchain;
  node.run({R"({"attnloom": 1, "kernel": "merge", "target": "sm_90a", "dtype": {"o": "f16"},
"head_dim": {"vo": 64}})"});
  check_one_compile_a_key(node, 1);
}

}  // namespace
}  // namespace attnloom
