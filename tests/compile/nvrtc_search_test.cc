// SPDX-License-Identifier: Apache-2.0
// Where NVRTC is looked for, and what is said when it is not whole.
#include <dlfcn.h>
#include <stdlib.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/process.h"
#include "compile/elf.h"
#include "nvrtc_for_tests.h"

namespace attnloom {
namespace {

namespace fs = std::filesystem;

class TempFolder {
 public:
  TempFolder() {
    std::string name = (fs::temp_directory_path() / "attnloom-nvrtc-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~TempFolder() { fs::remove_all(path_); }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

void copy_real(const fs::path& from, const fs::path& to) {
  fs::create_directories(to.parent_path());
  fs::copy_file(fs::canonical(from), to);
}

fs::path real_nvrtc() {
  const NvrtcProbe probe = probe_nvrtc(test_search());
  REQUIRE_FALSE(probe.found.empty());
  return probe.found;
}

std::string builtins_name() {
  const NvrtcProbe probe = probe_nvrtc(test_search());
  return "libnvrtc-builtins.so." + std::to_string(probe.major) + "." + std::to_string(probe.minor);
}

NvrtcSearch only(const fs::path& path) {
  NvrtcSearch search;
  search.path = path.string();
  return search;
}

bool mentions(const Status& status, const std::string& text) {
  return status.cause.find(text) != std::string::npos;
}

}  // namespace

TEST_CASE(
    "NVRTC without its builtins is refused with its path and version; cached kernels need "
    "neither") {
  const TempFolder folder;
  copy_real(real_nvrtc(), folder.path() / "libnvrtc.so.13");
  for (const fs::path& path : {folder.path(), folder.path() / "libnvrtc.so.13"}) {
    const auto toolchain = make_nvrtc_toolchain(only(path));
    const auto artifact = toolchain->compile(trivial_source());
    REQUIRE_FALSE(artifact.ok());
    INFO(artifact.status().to_string());
    CHECK(artifact.status().code == Code::kCompilerMissing);
    CHECK(mentions(artifact.status(), (folder.path() / "libnvrtc.so.13").string() + " (NVRTC "));
    CHECK(mentions(artifact.status(), builtins_name()));
    CHECK_FALSE(toolchain->fingerprint().ok());
    // Whoever puts the file there need not restart.
    copy_real(real_nvrtc().parent_path() / builtins_name(), folder.path() / builtins_name());
    CHECK(toolchain->compile(trivial_source()).ok());
    CHECK(*toolchain->fingerprint() == *test_toolchain()->fingerprint());
    fs::remove(folder.path() / builtins_name());
  }
}

TEST_CASE("builtins that cannot be loaded are COMPILER_MISSING with the loader's reason") {
  const TempFolder folder;
  copy_real(real_nvrtc(), folder.path() / "libnvrtc.so.13");
  std::ofstream(folder.path() / builtins_name()) << "not a library";
  const auto artifact = make_nvrtc_toolchain(only(folder.path()))->compile(trivial_source());
  REQUIRE_FALSE(artifact.ok());
  CHECK(artifact.status().code == Code::kCompilerMissing);
  CHECK(mentions(artifact.status(), "cannot load its builtins"));
}

// In a process of its own (hidden here): builtins that were loaded once are found by name ever
// after.
TEST_CASE("damaged builtins", "[.damaged]") {
  const fs::path folder = std::getenv("LD_LIBRARY_PATH");
  const auto artifact = make_nvrtc_toolchain(only(folder))->compile(trivial_source());
  REQUIRE_FALSE(artifact.ok());
  INFO(artifact.status().to_string());
  CHECK(artifact.status().code == Code::kCompilerMissing);
  CHECK(mentions(artifact.status(), (folder / "libnvrtc.so.13").string() + " (NVRTC "));
  CHECK(mentions(artifact.status(),
                 "NVRTC_ERROR_BUILTIN_OPERATION_FAILURE: nvrtc: error: libnvrtc-builtins.so."));
}

TEST_CASE("builtins without the builtins in them are COMPILER_MISSING with NVRTC's own log") {
  const TempFolder folder;
  copy_real(real_nvrtc(), folder.path() / "libnvrtc.so.13");
  Dl_info libm;
  double (*function)(double) = std::cbrt;
  REQUIRE(::dladdr(reinterpret_cast<void*>(function), &libm) != 0);
  copy_real(libm.dli_fname, folder.path() / builtins_name());
  const auto result = run_process({"/usr/bin/env", "LD_LIBRARY_PATH=" + folder.path().string(),
                                   fs::read_symlink("/proc/self/exe").string(), "[.damaged]"});
  REQUIRE(result.ok());
  INFO(result->output);
  CHECK(result->exit_code == 0);
  CHECK(result->output.find("in 1 test case") != std::string::npos);
}

TEST_CASE("a path that is named is the only place") {
  const TempFolder folder;
  const auto artifact = make_nvrtc_toolchain(only(folder.path()))->compile(trivial_source());
  REQUIRE_FALSE(artifact.ok());
  CHECK(artifact.status().code == Code::kCompilerMissing);
  CHECK(mentions(artifact.status(),
                 folder.path().string() + ": no libnvrtc.so.13 or libnvrtc.so.12"));
  const NvrtcProbe probe = probe_nvrtc(only(folder.path()));
  CHECK(probe.tried.size() == 1);
  CHECK(probe.found.empty());
}

TEST_CASE("places are tried in the documented order and a miss is named") {
  const TempFolder folder;
  const std::string root = folder.path().string();
  copy_real(real_nvrtc(), root + "/site/nvidia/cuda_nvrtc/lib/libnvrtc.so.13");
  copy_real(real_nvrtc().parent_path() / builtins_name(),
            root + "/site/nvidia/cuda_nvrtc/lib/" + builtins_name());
  NvrtcSearch search;
  search.beside = root + "/beside";
  search.python_paths = {root + "/other", root + "/site"};
  search.cuda_home = root + "/cuda";
  const NvrtcProbe probe = probe_nvrtc(search);
  CHECK(probe.found == root + "/site/nvidia/cuda_nvrtc/lib/libnvrtc.so.13");
  const std::string none = ": no libnvrtc.so.13 or libnvrtc.so.12";
  CHECK(probe.tried == std::vector<std::string>{root + "/beside" + none,
                                                root + "/other/nvidia/cu13/lib" + none,
                                                root + "/other/nvidia/cuda_nvrtc/lib" + none,
                                                root + "/site/nvidia/cu13/lib" + none});
}

TEST_CASE("the fingerprint tells builds apart that report one version") {
  const TempFolder folder;
  const fs::path copy = folder.path() / "libnvrtc.so.13";
  copy_real(real_nvrtc(), copy);
  copy_real(real_nvrtc().parent_path() / builtins_name(), folder.path() / builtins_name());
  const std::string id = read_build_id(copy.string());
  CHECK(id.size() >= 16);
  CHECK(id == read_build_id(real_nvrtc().string()));
  // A byte of the note changed: another build, as far as anybody can tell.
  // Far behind the header in some versions.
  std::string bytes(fs::file_size(copy), '\0');
  std::fstream file(copy, std::ios::in | std::ios::out | std::ios::binary);
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  const std::string head("\4\0\0\0\x14\0\0\0\3\0\0\0GNU\0", 16);  // a build-id of 20 bytes
  std::size_t note = bytes.find(head);
  REQUIRE(note != std::string::npos);
  note += head.size();
  file.seekp(static_cast<std::streamoff>(note));
  file.put(static_cast<char>(bytes[note] ^ 1));
  file.close();
  const auto changed = make_nvrtc_toolchain(only(copy))->fingerprint();
  REQUIRE(changed.ok());
  const auto original = test_toolchain()->fingerprint();
  REQUIRE(original.ok());
  CHECK(changed->hex != original->hex);
  CHECK(changed->cuda_minor == original->cuda_minor);
}

}  // namespace attnloom
