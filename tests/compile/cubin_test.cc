// SPDX-License-Identifier: Apache-2.0
// The ELF's figures against ptxas' own words for the same cubin.
#include "compile/cubin.h"

#include <catch2/catch.hpp>

#include "compile/cubin_note.h"
#include "nvrtc_for_tests.h"

namespace attnloom {
namespace {

const char* const kText = R"(
extern "C" __global__ void __launch_bounds__(96) plain(float* p) { p[threadIdx.x] = 1.0f; }
extern "C" __global__ void __launch_bounds__(256, 2) sharing(float* p) {
  __shared__ float s[250];
  s[threadIdx.x % 250] = p[threadIdx.x];
  __syncthreads();
  p[threadIdx.x] = s[249 - threadIdx.x % 250];
}
extern "C" __global__ void both(float* p) {
  extern __shared__ float d[];
  __shared__ int q[12];
  q[threadIdx.x % 12] = threadIdx.x;
  d[threadIdx.x] = p[threadIdx.x];
  __syncthreads();
  p[threadIdx.x] = d[249 - threadIdx.x] + q[threadIdx.x % 11];
}
extern "C" __global__ void indexed(float* p, int n) {
  float a[64];
  for (int i = 0; i < 64; i++) a[i] = p[i * n + threadIdx.x];
  for (int r = 0; r < n; r++) a[r % 64] += a[(r * 3) % 64];
  for (int i = 0; i < 64; i++) p[i * n + threadIdx.x] = a[i];
}
extern "C" __global__ void __launch_bounds__(1024, 2) spilling(float* p, int n) {
  float a[64];
  for (int i = 0; i < 64; i++) a[i] = p[i * n + threadIdx.x];
  for (int r = 0; r < n; r++)
    for (int i = 0; i < 64; i++) a[i] = a[i] * a[(i + 7) % 64] + p[r];
  for (int i = 0; i < 64; i++) p[i * n + threadIdx.x] = a[i];
}
)";

const std::vector<std::string> kEntries = {"plain", "sharing", "both", "indexed", "spilling"};

// The number before `words` in ptxas' paragraph about `entry`, or 0.
int said(const std::string& log, const std::string& entry, const std::string& words) {
  const std::size_t begin = log.find("Compiling entry function '" + entry + "'");
  REQUIRE(begin != std::string::npos);
  const std::size_t end = log.find("Compiling entry function", begin + 1);
  const std::string paragraph = log.substr(begin, end - begin);
  const std::size_t at = paragraph.find(" " + words);
  if (at == std::string::npos) return 0;
  const std::size_t before = paragraph.find_last_not_of("0123456789", at - 1);
  return std::stoi(paragraph.substr(before + 1, at - before - 1));
}

}  // namespace

TEST_CASE("figures of the cubin equal what ptxas says") {
  const auto toolchain = test_toolchain();
  for (const std::string target : {"sm_80", "sm_90a", "sm_120"}) {
    INFO(target);
    const auto artifact = toolchain->compile(test_source(kText, kEntries, target));
    INFO(artifact.status().to_string());
    REQUIRE(artifact.ok());
    REQUIRE(artifact->entries.size() == kEntries.size());
    for (const EntryFigures& entry : artifact->entries) {
      INFO(entry.name);
      CHECK(entry.registers > 0);
      CHECK(entry.registers == said(artifact->log, entry.name, "registers"));
      CHECK(entry.static_shared_bytes == said(artifact->log, entry.name, "bytes smem"));
      CHECK(entry.local_bytes == said(artifact->log, entry.name, "bytes stack frame"));
      CHECK(entry.spill_store_bytes == said(artifact->log, entry.name, "bytes spill stores"));
      CHECK(entry.spill_load_bytes == said(artifact->log, entry.name, "bytes spill loads"));
    }
    CHECK(artifact->entries[0].max_threads == 96);
    CHECK(artifact->entries[1].max_threads == 256);
    CHECK(artifact->entries[1].static_shared_bytes >= 1000);
    CHECK(artifact->entries[2].max_threads == 0);
    CHECK(artifact->entries[2].static_shared_bytes == 48);
    CHECK(artifact->entries[3].local_bytes == 256);
    CHECK(artifact->entries[4].spill_store_bytes > 0);
  }
}

TEST_CASE("a cubin cut anywhere or with any byte changed is read without a wild access") {
  const auto artifact = test_toolchain()->compile(trivial_source());
  REQUIRE(artifact.ok());
  const std::string& cubin = artifact->cubin;
  for (std::size_t bytes = 0; bytes < cubin.size(); ++bytes) {
    // An exact copy, so that a sanitizer sees the end.
    const std::vector<char> cut(cubin.begin(), cubin.begin() + static_cast<std::ptrdiff_t>(bytes));
    (void)read_cubin({cut.data(), cut.size()}, {"one"});
  }
  CHECK_FALSE(read_cubin(std::string_view(cubin).substr(0, cubin.size() / 2), {"one"}).ok());
  CHECK_FALSE(read_cubin("", {"one"}).ok());
  for (std::size_t at = 0; at < cubin.size(); ++at) {
    std::string changed = cubin;
    changed[at] = static_cast<char>(changed[at] ^ 0xff);
    (void)read_cubin(changed, {"one"});
  }
  const auto absent = read_cubin(cubin, {"two"});
  REQUIRE_FALSE(absent.ok());
  CHECK(absent.status().cause == "the compiled program has no kernel \"two\"");
}

TEST_CASE("a cubin's note names its compiler and the very target") {
  const auto toolchain = test_toolchain();
  const auto fingerprint = toolchain->fingerprint();
  REQUIRE(fingerprint.ok());
  // Of sm_100 and sm_100f nothing else in the cubin differs.
  for (const std::string target : {"sm_80", "sm_90", "sm_90a", "sm_100", "sm_100a", "sm_100f"}) {
    INFO(target);
    const bool blackwell = target.starts_with("sm_100");
    const auto artifact = toolchain->compile(trivial_source(target));
    REQUIRE(artifact.ok());
    const CubinNote note = read_cubin_note(artifact->cubin);
    if (fingerprint->cuda_major == 12 && !blackwell) {
      CHECK(note.target.empty());  // 12.9 writes none
      continue;
    }
    CHECK(note.tool == "ptxas");
    CHECK(note.target == target);
    CHECK(note.version.find("release " + std::to_string(fingerprint->cuda_major) + "." +
                            std::to_string(fingerprint->cuda_minor)) != std::string::npos);
  }
}

TEST_CASE("a note that is cut or changed gives no target or another, and no wild read") {
  const auto artifact = test_toolchain()->compile(trivial_source("sm_100f"));
  REQUIRE(artifact.ok());
  const std::string& cubin = artifact->cubin;
  for (std::size_t bytes = 0; bytes < cubin.size(); bytes += 13) {
    const std::string target = read_cubin_note(cubin.substr(0, bytes)).target;
    CHECK((target.empty() || target == "sm_100f"));
  }
  const std::size_t note = cubin.find("NVIDIA Corp") - 12;
  REQUIRE(note < cubin.size());
  for (std::size_t at = note; at < note + 12 + 12 + 24; ++at) {
    for (const int bits : {0x01, 0x80, 0xff}) {
      std::string changed = cubin;
      changed[at] = static_cast<char>(changed[at] ^ bits);
      const std::string target = read_cubin_note(changed).target;
      CHECK((target.empty() || target == "sm_100f"));
    }
  }
  for (const char version : {'\x02', '\x81', '\x03'}) {
    std::string other = cubin;
    other[note + 12 + 12] = version;
    CHECK(read_cubin_note(other).target == (version == '\x03' ? "" : "sm_100f"));
  }
  std::string renamed = cubin;
  renamed.replace(renamed.find("-arch sm_100f"), 13, "-arch sm_100a");
  CHECK(read_cubin_note(renamed).target == "sm_100a");
}

}  // namespace attnloom
