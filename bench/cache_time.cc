// SPDX-License-Identifier: Apache-2.0
// What a warm process pays for a kernel that it has, and what the cache on disk costs: a kernel
// taken by its handle, a verified hit, a publication. bench/record.py runs it; the entries are
// synthetic ones of the size of our attention kernels, so no compiler is needed.
#include <benchmark/benchmark.h>
#include <stdlib.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <random>
#include <string>

#include "cache/key.h"
#include "cache/store.h"
#include "engine/engine.h"

namespace {

using namespace attnloom;  // NOLINT: a program of one file

constexpr std::size_t kCubinBytes = 45'000;
constexpr std::size_t kPtxBytes = 90'000;
const Fingerprint kCompiler = {"0123456789abcdef", 13, 0, 13000};

enum class Place { kDisk, kMemory };

class Folder {
 public:
  explicit Folder(Place place = Place::kDisk) {
    const std::filesystem::path parent =
        place == Place::kMemory ? "/dev/shm" : std::filesystem::temp_directory_path();
    path_ = (parent / "attnloom-bench-XXXXXX").string();
    if (::mkdtemp(path_.data()) == nullptr) path_.clear();
  }
  ~Folder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// PTX of which zstd makes about an eighth, like that of real kernels; a cubin shrinks little, and
// is not packed.
Artifact artifact_of(const Source& source) {
  std::mt19937 random(1);
  Artifact artifact;
  artifact.cubin.resize(kCubinBytes);
  for (char& byte : artifact.cubin) byte = static_cast<char>(random());
  while (artifact.ptx.size() < kPtxBytes) {
    artifact.ptx += "  fma.rn.f32 %f" + std::to_string(random() % 256) + ", %f" +
                    std::to_string(random() % 256) + ", %f1, %f2;\n";
  }
  artifact.target = source.target;
  for (const std::string& entry : source.entries)
    artifact.entries.push_back({.name = entry, .registers = 128, .max_threads = 128});
  artifact.fingerprint = kCompiler;
  return artifact;
}

class SyntheticToolchain : public Toolchain {
 public:
  Result<Fingerprint> fingerprint() override { return kCompiler; }
  Result<Artifact> compile(const Source& source) override { return artifact_of(source); }
};

Source source_of_entry() {
  Source source;
  source.text = "extern \"C\" __global__ void one(float* out) {}\n";
  source.target = "sm_90a";
  source.entries = {"one"};
  return source;
}

// alm_kernel_prepare and every plan of a context go this way once a kernel is there.
void acquire(benchmark::State& state) {
  const Folder folder;
  EngineOptions options;
  options.toolchain = std::make_unique<SyntheticToolchain>();
  options.files = make_real_file_system();
  options.store.root = folder.path();
  Engine engine(std::move(options));
  const auto kernels = engine.open(R"({
    "attnloom": 1, "kernel": "attention", "target": "sm_90a",
    "dtype": {"q": "bf16", "kv": "bf16", "o": "bf16"}, "head_dim": {"qk": 128, "vo": 128},
    "group_size": 4, "layout": {"kv": "paged", "page_size": 16}, "tile": {"q": 64, "kv": 64},
    "variant": {"name": "causal", "mask": {"causal": true}}})");
  if (!kernels.ok()) return state.SkipWithError(kernels.status().to_string().c_str());
  KernelSet& set = **kernels;
  if (const Status made = set.prepare(); !made.ok())
    return state.SkipWithError(made.to_string().c_str());
  for (auto _ : state) {
    const auto kernel = set.acquire(0);
    if (!kernel.ok()) return state.SkipWithError("not there");
    benchmark::DoNotOptimize(kernel.value());
  }
}
BENCHMARK(acquire)->Unit(benchmark::kMicrosecond);

// Argument: 1 with the PTX unpacked as well.
void hit(benchmark::State& state) {
  const Folder folder;
  const auto files = make_real_file_system();
  Store store(*files, {.root = folder.path(), .warn = {}, .care = {}});
  const Source source = source_of_entry();
  const std::string key = request_key(source);
  if (const Status status = store.publish(key, source, artifact_of(source)); !status.ok())
    return state.SkipWithError(status.to_string().c_str());
  const Need need{.cubin = true, .ptx = state.range(0) == 1};
  for (auto _ : state) {
    if (!store.find(key, source.target, need, 0)) return state.SkipWithError("a miss");
  }
  state.counters["cubin_bytes"] = static_cast<double>(kCubinBytes);
}
BENCHMARK(hit)->Arg(0)->Arg(1)->Unit(benchmark::kMicrosecond);

// What the file system alone takes to write, sync and name as many bytes as an entry has.
void write_and_sync(benchmark::State& state, Place place) {
  const Folder folder(place);
  const auto files = make_real_file_system();
  const std::string bytes(kCubinBytes + kPtxBytes / 6, 'x');
  std::uint64_t count = 0;
  for (auto _ : state) {
    const std::string path = folder.path() + "/" + std::to_string(++count);
    if (!files->publish(folder.path(), path, bytes, Publish::kFirstWins).ok())
      return state.SkipWithError("not written");
  }
}
BENCHMARK_CAPTURE(write_and_sync, disk, Place::kDisk)->UseRealTime()->Unit(benchmark::kMicrosecond);

void publish(benchmark::State& state, Place place) {
  const Folder folder(place);
  const auto files = make_real_file_system();
  Store store(*files, {.root = folder.path(), .warn = {}, .care = {}});
  const Source source = source_of_entry();
  const Artifact artifact = artifact_of(source);
  char key[65];
  std::uint64_t count = 0;
  for (auto _ : state) {
    // The first digits name the folder: spread, as those of real keys are.
    std::snprintf(key, sizeof key, "%02x%062llx", static_cast<unsigned>(count % 256),
                  static_cast<unsigned long long>(count));
    ++count;
    if (!store.publish(key, source, artifact).ok()) return state.SkipWithError("not stored");
  }
}
BENCHMARK_CAPTURE(publish, memory, Place::kMemory)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(publish, disk, Place::kDisk)->UseRealTime()->Unit(benchmark::kMicrosecond);

}  // namespace
