// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda.h"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <thread>

#include "runtime/fake_driver.h"

namespace attnloom {
namespace {

Artifact artifact(const std::string& target) {
  Artifact made;
  made.cubin = "cubin";
  made.target = target;
  made.entries.push_back({.name = "attention"});
  made.fingerprint = {"0123456789abcdef", 13, 0, 13000};
  return made;
}

constexpr LaunchShape kShape = {.grid = 7, .block = 128, .shared_bytes = 65536};
constexpr unsigned long long kArgument = 0x1234;

std::span<const std::byte> argument() {
  return std::as_bytes(std::span(&kArgument, 1));
}

std::unique_ptr<Backend> make_backend() {
  Result<std::unique_ptr<Backend>> made = make_cuda_backend(FakeDriver::path());
  REQUIRE(made.ok());
  return std::move(made).value();
}

TEST_CASE("a machine without libcuda gives NO_DRIVER that names the library") {
  const auto made = make_cuda_backend("/nonexistent/libcuda.so.1");
  CHECK(made.status().code == Code::kNoDriver);
  CHECK(made.status().cause.find("/nonexistent/libcuda.so.1") != std::string::npos);
}

TEST_CASE("a library that is not a driver gives DRIVER_TOO_OLD that names the missing function") {
  const auto made = make_cuda_backend("libdl.so.2");
  CHECK(made.status().code == Code::kDriverTooOld);
  CHECK(made.status().cause.find("cuInit") != std::string::npos);
}

TEST_CASE("without a current context the primary context of device 0 is made current") {
  FakeDriver driver;
  const auto backend = make_backend();
  CHECK(backend->device().target.name() == "sm_120");
  CHECK(backend->device().sm_count == 170);
  CHECK(driver.current() != nullptr);
  CHECK(driver.calls("cuDevicePrimaryCtxRetain") == 1);
}

// B99: device 0 is 12.0, device 1 is 8.6 and current.
TEST_CASE("the device is that of the current context, and device 0 is not touched") {
  FakeDriver driver;
  void* context = driver.make_context(1);
  const auto backend = make_backend();
  CHECK(backend->device().target.name() == "sm_86");
  CHECK(backend->device().sm_count == 84);
  CHECK(driver.calls("cuDevicePrimaryCtxRetain") == 0);
  const auto kernel = backend->load(artifact("sm_86"), "attention", 65536);
  REQUIRE(kernel.ok());
  CHECK(driver.shared_attribute(1) == 65536);
  CHECK(driver.shared_attribute(0) == 0);
  CHECK(driver.current() == context);
}

// B103: one load of the library, one module per context, the caller's context unchanged after each
// call.
TEST_CASE("one kernel serves several contexts and threads") {
  FakeDriver driver;
  void* first = driver.make_context(1);
  void* second = driver.make_context(1);
  const auto backend = make_backend();
  const auto kernel = backend->load(artifact("sm_86"), "attention", 65536);
  REQUIRE(kernel.ok());
  for (void* context : {first, second, first}) {
    driver.set_current(context);
    REQUIRE(backend->launch(**kernel, kShape, argument(), nullptr).ok());
    CHECK(driver.current() == context);
  }
  Status in_thread;
  std::thread([&] {
    driver.set_current(first);
    in_thread = backend->launch(**kernel, kShape, argument(), nullptr);
  }).join();
  CHECK(in_thread.ok());
  CHECK(driver.calls("cuLibraryLoadData") == 1);
  CHECK(driver.module_loads() == 2);
  CHECK(driver.calls("cuLaunchKernel") == 4);
}

TEST_CASE("a launch on a device that cannot run the kernel is refused before the driver sees it") {
  FakeDriver driver;
  driver.make_context(1);
  const auto backend = make_backend();
  const auto kernel = backend->load(artifact("sm_86"), "attention", 1024);
  REQUIRE(kernel.ok());
  driver.make_context(0);
  const Status status = backend->launch(**kernel, kShape, argument(), nullptr);
  CHECK(status.code == Code::kArchMismatch);
  CHECK(status.cause.find("sm_120") != std::string::npos);
  CHECK(driver.calls("cuLaunchKernel") == 0);
}

TEST_CASE("a thread without a context gets the backend's own") {
  FakeDriver driver;
  driver.make_context(1);
  const auto backend = make_backend();
  const auto kernel = backend->load(artifact("sm_86"), "attention", 1024);
  REQUIRE(kernel.ok());
  Status in_thread;
  std::thread([&] { in_thread = backend->launch(**kernel, kShape, argument(), nullptr); }).join();
  CHECK(in_thread.ok());
  CHECK(driver.last_launch().device == 1);
}

TEST_CASE("a launch passes its shape, stream and argument block on") {
  FakeDriver driver;
  const auto backend = make_backend();
  const auto kernel = backend->load(artifact("sm_120"), "attention", 65536);
  REQUIRE(kernel.ok());
  int stream = 0;
  REQUIRE(backend->launch(**kernel, kShape, argument(), &stream).ok());
  const FakeLaunch launch = driver.last_launch();
  CHECK(launch.grid == 7);
  CHECK(launch.block == 128);
  CHECK(launch.shared_bytes == 65536);
  CHECK(launch.stream == &stream);
  CHECK(launch.first_argument == kArgument);
}

TEST_CASE("a driver error carries the driver's own name and text") {
  FakeDriver driver;
  const auto backend = make_backend();
  const auto kernel = backend->load(artifact("sm_120"), "attention", 1024);
  REQUIRE(kernel.ok());
  driver.fail("cuLaunchKernel", 719);
  const Status status = backend->launch(**kernel, kShape, argument(), nullptr);
  CHECK(status.code == Code::kLaunch);
  CHECK(status.cause ==
        "cuLaunchKernel: CUDA_ERROR_LAUNCH_FAILED (719): the fake driver was told to fail");
  driver.fail("cuLibraryLoadData", 209);
  CHECK(backend->load(artifact("sm_120"), "attention", 1024).status().code == Code::kArchMismatch);
  driver.fail("cuMemAlloc", 2);
  CHECK(backend->allocate(64, "q").status().code == Code::kOutOfMemory);
  driver.fail("cuMemAllocHost", 2);
  CHECK(backend->allocate_host(64).status().code == Code::kOutOfMemory);
}

TEST_CASE("host memory is the driver's") {
  FakeDriver driver;
  const auto backend = make_backend();
  const auto block = backend->allocate_host(100);
  REQUIRE(block.ok());
  CHECK(reinterpret_cast<std::uintptr_t>(*block) % kHostAlignment == 0);
  CHECK(backend->release_host(*block).ok());
  driver.fail("cuMemFreeHost", 1);
  CHECK(backend->release_host(*block).code == Code::kArgumentInvalid);
}

TEST_CASE("what cannot be loaded is refused with the reason") {
  FakeDriver driver;
  driver.make_context(1);
  const auto backend = make_backend();
  CHECK(backend->load(artifact("sm_90a"), "attention", 0).status().code == Code::kArchMismatch);
  CHECK(backend->load(artifact("sm_86"), "attention", 200'000).status().code ==
        Code::kResourceLimit);
  Artifact without_cubin = artifact("sm_86");
  without_cubin.cubin.clear();
  CHECK(backend->load(without_cubin, "attention", 0).status().code == Code::kLoadFailed);
  CHECK(driver.calls("cuLibraryLoadData") == 0);
}

TEST_CASE("a driver older than the cubin's compiler is refused with the least version") {
  FakeDriver driver;
  driver.set_driver_version(12090);
  driver.make_context(1);
  const auto backend = make_backend();
  const auto kernel = backend->load(artifact("sm_86"), "attention", 0);
  CHECK(kernel.status().code == Code::kDriverTooOld);
  CHECK(kernel.status().cause.find("13.0") != std::string::npos);
  CHECK(driver.calls("cuLibraryLoadData") == 0);
}

TEST_CASE("capture state is the stream's, and an implicit capture counts as one") {
  FakeDriver driver;
  const auto backend = make_backend();
  int stream = 0;
  const auto capturing = [&](Stream asked) {
    const Result<bool> answer = backend->is_capturing(asked);
    REQUIRE(answer.ok());
    return answer.value();
  };
  CHECK_FALSE(capturing(&stream));
  driver.set_capture(1);
  CHECK(capturing(&stream));
  driver.set_capture(-1);
  CHECK(capturing(nullptr));
}

TEST_CASE("a tensor map is the driver's; what no device encodes never reaches it") {
  FakeDriver driver;
  const auto backend = make_backend();
  TensorMapShape shape;
  shape.address = 0x10000;
  shape.element_bytes = 8;
  shape.rank = 2;
  shape.dims = {16, 9};
  shape.stride_bytes = {128};
  shape.box = {16, 4};
  shape.swizzle = TensorSwizzle::k128;
  const auto map = backend->encode_tensor_map(shape);
  REQUIRE(map.ok());
  std::uint64_t asked[7];
  std::memcpy(asked, map->bytes.data(), sizeof(asked));
  const std::uint64_t wanted[7] = {4, 2, 0x10000, 9, 128, 16, 3};
  CHECK(std::memcmp(asked, wanted, sizeof(asked)) == 0);
  shape.element_bytes = 2;
  CHECK(backend->encode_tensor_map(shape).ok());
  shape.box[1] = 300;
  CHECK(backend->encode_tensor_map(shape).status().path == "box");
  CHECK(driver.calls("cuTensorMapEncodeTiled") == 2);
}

// B105.
TEST_CASE("after a fork the child gets FORKED, not a hang, and makes no driver call") {
  FakeDriver driver;
  const auto backend = make_backend();
  auto kernel = backend->load(artifact("sm_120"), "attention", 1024);
  REQUIRE(kernel.ok());
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const int before = driver.all_calls();
    bool forked = backend->launch(**kernel, kShape, argument(), nullptr).code == Code::kForked;
    forked = forked && backend->synchronize(nullptr).code == Code::kForked;
    forked = forked && backend->make_event().status().code == Code::kForked;
    kernel = Status{Code::kInternal, {}, {}, {}};  // unloads
    _exit(forked && driver.all_calls() == before ? 0 : 1);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(backend->launch(**kernel, kShape, argument(), nullptr).ok());
}

TEST_CASE("a child of a process that never used the device can use it") {
  FakeDriver driver;
  CHECK(driver.all_calls() == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) _exit(make_cuda_backend(FakeDriver::path()).ok() ? 0 : 1);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("a driver initialised before the fork by somebody else gives FORKED in the child") {
  FakeDriver driver;
  driver.make_context(0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0)
    _exit(make_cuda_backend(FakeDriver::path()).status().code == Code::kForked ? 0 : 1);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("kernels, events and the primary context are given back") {
  FakeDriver driver;
  {
    const auto backend = make_backend();
    const auto kernel = backend->load(artifact("sm_120"), "attention", 1024);
    const auto event = backend->make_event();
    REQUIRE((kernel.ok() && event.ok()));
  }
  CHECK(driver.calls("cuLibraryUnload") == 1);
  CHECK(driver.calls("cuEventDestroy") == 1);
  CHECK(driver.calls("cuDevicePrimaryCtxRelease") == 1);
  // A released context that stays current would make the thread's next backend start in a dead one.
  CHECK(driver.current() == nullptr);
}

TEST_CASE("own_target takes the features of Hopper and the exact capability of others") {
  CHECK(own_target(9, 0).name() == "sm_90a");
  CHECK(own_target(8, 9).name() == "sm_89");
  CHECK(own_target(12, 1).name() == "sm_121");
}

TEST_CASE("a refused image is told from the context's own trouble, wherever it shows") {
  FakeDriver driver;
  const auto backend = make_backend();
  for (const char* call : {"cuLibraryLoadData", "cuKernelGetFunction"}) {
    for (const int result : {200, 209, 218, 300, 303, 304, 700, 719, 2, 900}) {
      INFO(call << " " << result);
      driver.fail(call, result);
      const Status status = backend->load(artifact("sm_120"), "attention", 0).status();
      CHECK_FALSE(status.ok());
      const bool image =
          result == 200 || result == 209 || result == 218 || result == 300 || result == 303;
      CHECK((status.path == kRefusedImage) == image);
      driver.fail(call, 0);
    }
  }
}

}  // namespace
}  // namespace attnloom
