// SPDX-License-Identifier: Apache-2.0
// Versions and answers that no NVRTC at hand gives.
#include <dlfcn.h>

#include <catch2/catch.hpp>
#include <thread>

#include "nvrtc_for_tests.h"

namespace attnloom {
namespace {

std::string folder_of(const std::string& version) {
  return std::string(FAKE_FOLDER) + "/fake_nvrtc_" + version;
}

std::unique_ptr<Toolchain> toolchain_of(const std::string& version) {
  NvrtcSearch search;
  search.path = folder_of(version);
  return make_nvrtc_toolchain(search);
}

Status status_of(const std::string& text) {
  return toolchain_of("13_7")->compile(test_source(text, {"one"})).status();
}

int programs_alive() {
  void* handle = ::dlopen((folder_of("13_7") + "/libnvrtc.so.13").c_str(), RTLD_NOW | RTLD_NOLOAD);
  REQUIRE(handle != nullptr);
  const auto alive = reinterpret_cast<int (*)()>(::dlsym(handle, "fake_nvrtc_alive"));
  REQUIRE(alive != nullptr);
  return alive();
}

}  // namespace

TEST_CASE("versions outside 12.9 to 13.x are COMPILER_VERSION") {
  for (const std::string version : {"12_8", "14_0"}) {
    const auto fingerprint = toolchain_of(version)->fingerprint();
    REQUIRE_FALSE(fingerprint.ok());
    INFO(fingerprint.status().to_string());
    // 14 has another file name, so it is not even looked at.
    CHECK(fingerprint.status().code ==
          (version == "12_8" ? Code::kCompilerVersion : Code::kCompilerMissing));
  }
  NvrtcSearch search;
  search.path = folder_of("14_0") + "/libnvrtc.so.14";
  CHECK(make_nvrtc_toolchain(search)->fingerprint().status().code == Code::kCompilerVersion);
}

TEST_CASE("the least driver follows the CUDA major; two versions are two fingerprints") {
  const auto old = toolchain_of("12_9")->fingerprint();
  const auto recent = toolchain_of("13_7")->fingerprint();
  REQUIRE(old.ok());
  REQUIRE(recent.ok());
  CHECK(old->cuda_major == 12);
  CHECK(old->cuda_minor == 9);
  CHECK(old->least_driver == 12000);
  CHECK(recent->cuda_minor == 7);
  CHECK(recent->least_driver == 13000);
  CHECK(old->hex != recent->hex);
  CHECK(old->hex.size() == 16);
}

TEST_CASE("a place with an unusable version is passed over for the next one") {
  NvrtcSearch search;
  search.beside = folder_of("12_8");
  search.python_paths = {"/nowhere"};
  search.cuda_home = "/nowhere";
  const NvrtcProbe probe = probe_nvrtc(search);
  REQUIRE_FALSE(probe.tried.empty());
  CHECK(probe.tried[0] ==
        folder_of("12_8") + ": " + folder_of("12_8") + "/libnvrtc.so.12 is NVRTC 12.8");
  search.beside = folder_of("13_7");
  CHECK(probe_nvrtc(search).found == folder_of("13_7") + "/libnvrtc.so.13");
}

TEST_CASE("success without bytes is an error, and so is a cubin that is none") {
  CHECK(status_of("empty").code == Code::kInternal);
  CHECK(status_of("empty").cause.find("made no cubin") != std::string::npos);
  CHECK(status_of("no ptx").cause.find("made no PTX") != std::string::npos);
  CHECK(status_of("rubbish").cause.find("not a whole ELF") != std::string::npos);
}

TEST_CASE("want of memory can be tried again, an internal error cannot; both name no field") {
  CHECK(status_of("out of memory").code == Code::kOutOfMemory);
  CHECK(is_retryable(status_of("out of memory").code));
  const Status internal = status_of("internal");
  CHECK(internal.code == Code::kInternal);
  CHECK(internal.cause == folder_of("13_7") + "/libnvrtc.so.13 (NVRTC 13.7): FAKE_ERROR: a log");
}

TEST_CASE("every program is destroyed") {
  for (const std::string text : {"empty", "no ptx", "rubbish", "out of memory", "internal"}) {
    CHECK_FALSE(status_of(text).ok());
  }
  CHECK(programs_alive() == 0);
}

TEST_CASE("a compile stops at its deadline or when it is cancelled, and its program is destroyed") {
  const auto toolchain = toolchain_of("13_7");
  const Source source = test_source("endless", {"one"});
  Interrupt clock;
  clock.start_clock(std::chrono::milliseconds(1));
  CHECK(toolchain->compile_interruptibly(source, clock).status().code == Code::kCompileTimeout);
  Interrupt button;
  std::thread other([&] { button.cancel(); });
  CHECK(toolchain->compile_interruptibly(source, button).status().code == Code::kCancelled);
  other.join();
  CHECK(programs_alive() == 0);
}

}  // namespace attnloom
