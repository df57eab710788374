// SPDX-License-Identifier: Apache-2.0
// Compiles in attnloom-cc, and in programs in its place that crash, hang or lie.
#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "../base/temp_directory.h"
#include "sandbox_for_tests.h"

namespace attnloom {
namespace {

using namespace std::chrono_literals;

#ifdef ATTNLOOM_SANITIZED
constexpr bool kMemoryIsBounded = false;
#else
constexpr bool kMemoryIsBounded = true;
#endif

// A kernel without Landlock cannot show what a confined compile does; that it is refused there, it
// can. True where the test can go on.
bool can_confine(Toolchain& toolchain) {
  const auto fingerprint = toolchain.fingerprint();
  if (fingerprint.ok()) return true;
  INFO(fingerprint.status().to_string());
  REQUIRE(fingerprint.status().code == Code::kUntrusted);
  WARN("SKIPPED, nothing is shown: " << fingerprint.status().cause);
  return false;
}

// What the kernel says about our only child; "" while there is none.
std::string child_status() {
  const std::string parent = "PPid:\t" + std::to_string(::getpid()) + "\n";
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream file(entry.path() / "status");
    const std::string status(std::istreambuf_iterator<char>(file), {});
    if (status.find(parent) != std::string::npos) return status;
  }
  return {};
}

Result<Artifact> answer_of(const std::string& how, const Interrupt& interrupt = Interrupt()) {
  const TempDirectory folder;
  const std::string worker = folder.path() + "/" + how;
  std::filesystem::create_symlink(FAKE_WORKER, worker);
  const auto toolchain = make_sandbox_toolchain(sandbox_options(worker));
  return toolchain->compile_interruptibly(trivial_source(), interrupt);
}

}  // namespace

TEST_CASE("the worker compiles to the bytes that this process compiles to") {
  const auto sandbox = make_sandbox_toolchain(sandbox_options());
  if (!can_confine(*sandbox)) return;
  const auto own = test_toolchain();
  CHECK(sandbox->fingerprint().value() == own->fingerprint().value());
  for (const char* target : {"sm_90a", "sm_80"}) {
    const auto theirs = sandbox->compile(trivial_source(target));
    INFO(theirs.status().to_string());
    REQUIRE(theirs.ok());
    CHECK(theirs.value() == own->compile(trivial_source(target)).value());
  }
}

TEST_CASE("the compiler's errors are those of this process") {
  const auto sandbox = make_sandbox_toolchain(sandbox_options());
  if (!can_confine(*sandbox)) return;
  const auto own = test_toolchain();
  const Source wrong = test_source(
      "extern \"C\" __global__ void one(float* out) {\n#line 1 \"variant.logits_transform\"\n"
      "foo;\n}\n",
      {"one"});
  const Status error = sandbox->compile(wrong).status();
  CHECK(error.code == Code::kCompileFailed);
  CHECK(error.to_string() == own->compile(wrong).status().to_string());
  const Source no_target = trivial_source("sm_10");
  CHECK(sandbox->compile(no_target).status().to_string() ==
        own->compile(no_target).status().to_string());
}

TEST_CASE("text of the machine's files reaches nobody") {
  const TempDirectory folder;
  const std::string file = folder.path() + "/secret";
  std::ofstream(file) << "s3cret words\n";
  Source source = trivial_source();
  source.text += "#include \"" + file + "\"\n";
  // Where nothing confines the compiler it opens the file, and its words are left out of the log.
  const std::string own = test_toolchain()->compile(source).status().to_string();
  CHECK(own.find("another file is left out") != std::string::npos);
  CHECK(own.find("s3cret") == std::string::npos);
  const auto sandbox = make_sandbox_toolchain(sandbox_options());
  if (!can_confine(*sandbox)) return;
  const std::string confined = sandbox->compile(source).status().to_string();
  INFO(confined);
  CHECK(confined.find("cannot open source file") != std::string::npos);
  CHECK(confined.find("s3cret") == std::string::npos);
}

TEST_CASE("a functor without end is stopped by the deadline, by a cancel, and by its own limit") {
  SandboxOptions options = sandbox_options();
  options.time = 1s;
  const auto toolchain = make_sandbox_toolchain(options);
  if (!can_confine(*toolchain)) return;
  CHECK(toolchain->compile(nested(1000)).status().code == Code::kCompileTimeout);

  Interrupt deadline;
  deadline.start_clock(100ms);
  CHECK(toolchain->compile_interruptibly(nested(1000), deadline).status().code ==
        Code::kCompileTimeout);

  Interrupt cancel;
  std::thread presser([&] {
    std::this_thread::sleep_for(100ms);
    cancel.cancel();
  });
  CHECK(toolchain->compile_interruptibly(nested(1000), cancel).status().code == Code::kCancelled);
  presser.join();
  CHECK(toolchain->compile(trivial_source()).ok());
}

TEST_CASE("a functor that takes all memory costs its request only") {
  if (!kMemoryIsBounded) {
    WARN("SKIPPED, nothing is shown: a sanitizer maps more than any bound");
    return;
  }
  SandboxOptions options = sandbox_options();
  options.address_space_bytes = std::uint64_t{400} << 20;
  const auto toolchain = make_sandbox_toolchain(options);
  if (!can_confine(*toolchain)) return;
  const Status error = toolchain->compile(nested(500)).status();
  INFO(error.to_string());
  CHECK(error.code == Code::kOutOfMemory);
  CHECK(error.cause.find("400 MiB of address space") != std::string::npos);
  CHECK(toolchain->compile(trivial_source()).ok());
}

TEST_CASE("the worker is confined while it compiles") {
  const auto toolchain = make_sandbox_toolchain(sandbox_options());
  if (!can_confine(*toolchain)) return;
  Interrupt interrupt;
  interrupt.start_clock(20s);
  std::thread compiling(
      [&] { static_cast<void>(toolchain->compile_interruptibly(nested(1000), interrupt)); });
  std::string seen;
  while (interrupt.reason() == Code::kOk) {
    seen = child_status();
    if (seen.find("Seccomp:\t2") != std::string::npos) break;
  }
  interrupt.cancel();
  compiling.join();
  INFO(seen);
  CHECK(seen.find("NoNewPrivs:\t1") != std::string::npos);
  CHECK(seen.find("Seccomp:\t2") != std::string::npos);
  CHECK(seen.find("CapEff:\t0000000000000000") != std::string::npos);
}

TEST_CASE("how a worker ends says which error it is") {
  const Status crash = answer_of("crash").status();
  CHECK(crash.code == Code::kInternal);
  CHECK(crash.cause.find("SIGSEGV") != std::string::npos);
  CHECK(answer_of("killed").status().code == Code::kOutOfMemory);
  CHECK(answer_of("out_of_time").status().code == Code::kCompileTimeout);
  CHECK(answer_of("mute").status().code == Code::kInternal);
  CHECK(answer_of("status").status().cause.find("status 5") != std::string::npos);
  CHECK(answer_of("garbage").status().code == Code::kInternal);
  CHECK(answer_of("flood").status().code != Code::kOk);
}

TEST_CASE("a worker that hangs, or closes its output and hangs, is killed") {
  Interrupt deadline;
  deadline.start_clock(50ms);
  CHECK(answer_of("hang", deadline).status().code == Code::kCompileTimeout);
  CHECK(answer_of("closes_and_hangs").status().code == Code::kOutOfMemory);
}

TEST_CASE("what a worker says is not believed where it can be checked") {
  CHECK_FALSE(answer_of("no_cubin").ok());
  const Status error = answer_of("control").status();
  CHECK(error.code == Code::kCompileFailed);
  CHECK(error.cause.size() == 4096);
  CHECK(error.cause.substr(0, 13) == "one two [31mx");
}

TEST_CASE("a worker has three descriptors and no environment") {
  ::setenv("ATTNLOOM_TEST_SECRET", "secret", 1);
  const int leaked = ::open("/dev/null", O_RDONLY);  // not close-on-exec
  const Status error = answer_of("holdings").status();
  ::close(leaked);
  CHECK(error.cause == "0 1 2 environment []");
}

TEST_CASE("a worker that is not there names itself") {
  const auto toolchain = make_sandbox_toolchain(sandbox_options("/nonexistent/attnloom-cc"));
  const Status error = toolchain->compile(trivial_source()).status();
  CHECK(error.code == Code::kCompilerMissing);
  CHECK(error.cause.find("/nonexistent/attnloom-cc") != std::string::npos);
}

TEST_CASE("a worker without a compiler says where it looked") {
  SandboxOptions options = sandbox_options();
  options.search = {.path = "/nonexistent/nvrtc"};
  const Status error = make_sandbox_toolchain(options)->compile(trivial_source()).status();
  CHECK(error.code == Code::kCompilerMissing);
  CHECK(error.cause.find("/nonexistent/nvrtc") != std::string::npos);
}

TEST_CASE("a host program that ignores its children gets its answers all the same") {
  const auto toolchain = make_sandbox_toolchain(sandbox_options());
  if (!can_confine(*toolchain)) return;
  const auto before = std::signal(SIGCHLD, SIG_IGN);
  const auto artifact = toolchain->compile(trivial_source());
  std::signal(SIGCHLD, before);
  CHECK(artifact.ok());
}

}  // namespace attnloom
