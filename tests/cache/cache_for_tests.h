// SPDX-License-Identifier: Apache-2.0
// Artifacts, a compiler that counts, and a folder on disk, for the tests of the cache.
#pragma once

#include <stdlib.h>

#include <atomic>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "cache/key.h"
#include "cache/store.h"
#include "compile/toolchain.h"

namespace attnloom {

inline const Fingerprint kCuda129 = {"1111111111111111", 12, 9, 12000};
inline const Fingerprint kCuda130 = {"2222222222222222", 13, 0, 13000};
inline const Fingerprint kCuda135 = {"3333333333333333", 13, 5, 13000};

inline Source fake_source(const std::string& text = "kernel",
                          const std::string& target = "sm_90a") {
  return {.text = text,
          .headers = {{"loom/a.cuh", "int a;"}},
          .options = {"--gpu-architecture=" + target, "-std=c++17"},
          .target = target,
          .entries = {"one"}};
}

// What a compiler would make of `source`: determined by source and compiler alone, like the real
// one.
inline Artifact fake_artifact(const Source& source, const Fingerprint& fingerprint = kCuda130) {
  Artifact artifact;
  artifact.cubin = "\177ELF cubin of " + source.text + " for " + source.target + " by " +
                   fingerprint.hex + std::string(2000, 'c') + std::string(1, '\0');
  artifact.ptx = "// ptx of " + source.text + std::string(5000, 'p');
  artifact.target = source.target;
  artifact.entries = {{"one", 40, 1024, 16, 4, 8, 128}};
  artifact.log = "ptxas info    : Used 40 registers\n";
  artifact.fingerprint = fingerprint;
  return artifact;
}

class FakeToolchain : public Toolchain {
 public:
  explicit FakeToolchain(Fingerprint fingerprint = kCuda130)
      : fingerprint_(std::move(fingerprint)) {}

  Result<Fingerprint> fingerprint() override { return fingerprint_; }
  Result<Artifact> compile(const Source& source) override {
    ++compiles;
    if (source.text.find("error") != std::string::npos) {
      return make_error(Code::kCompileFailed, "$.variant.logits_transform", source.text);
    }
    return fake_artifact(source, fingerprint_);
  }

  std::atomic<int> compiles{0};

 private:
  const Fingerprint fingerprint_;
};

// The way of a request through cache and compiler, as engine goes it.
inline Result<Artifact> get(Store& store, Toolchain& toolchain, const Source& source,
                            Need need = {}, int driver_version = 0) {
  const std::string key = request_key(source);
  if (auto found = store.find(key, source.target, need, driver_version))
    return std::move(found->artifact);
  ATTNLOOM_TRY(Artifact artifact, toolchain.compile(source));
  (void)store.publish(key, source, artifact);  // never fatal
  return artifact;
}

class TempFolder {
 public:
  explicit TempFolder(
      const std::filesystem::path& parent = std::filesystem::temp_directory_path()) {
    std::string name = (parent / "attnloom-cache-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  const std::string& path() const { return path_; }
  std::string root() const { return path_ + "/cache"; }

 private:
  std::string path_;
};

inline std::string path_of_entry(const std::string& root, const Source& source,
                                 const Fingerprint& fingerprint = kCuda130) {
  const std::string key = request_key(source);
  return root + "/v1/k/" + key.substr(0, 2) + "/" + key + "." + fingerprint.hex + ".alk";
}

}  // namespace attnloom
