// SPDX-License-Identifier: Apache-2.0
// What a start from a bundle costs: opening one of 200 entries, a hit in it, the same with a
// signature, and packing one entry. The entries are synthetic ones of the size of our attention
// kernels that pack about as well, so no compiler is needed.
#include <benchmark/benchmark.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>

#include "cache/bundle_writer.h"
#include "cache/entry.h"
#include "cache/store.h"
#include "cache/trust.h"

namespace {

using namespace attnloom;  // NOLINT: a program of one file

constexpr int kEntries = 200;
constexpr int kInstructions = 45'000 / 16;

Source source_of(int number) {
  return {.text = "kernel " + std::to_string(number), .target = "sm_90a", .entries = {"one"}};
}

// Words of 16 bytes of which a third is chance, as instructions are.
std::string entry_of(int number) {
  std::mt19937 random(static_cast<unsigned>(number));
  Artifact artifact;
  for (int i = 0; i < kInstructions; ++i) {
    for (int byte = 0; byte < 16; ++byte)
      artifact.cubin += static_cast<char>(byte % 3 == 0 ? random() : byte);
  }
  artifact.target = "sm_90a";
  artifact.entries = {{.name = "one", .registers = 128, .max_threads = 128}};
  artifact.fingerprint = {"0123456789abcdef", 13, 0, 13000};
  const Source source = source_of(number);
  return encode_entry(request_key(source), source, artifact);
}

struct Bundle {
  Bundle() {
    std::vector<BundleInput> inputs;
    for (int i = 0; i < kEntries; ++i) {
      BundleInput input{entry_of(i), "", Json()};
      const Entry entry = decode_entry(input.bytes, Unpack::kAll).value();
      input.signature = add_signature("", key.sign(facts_of(entry)));
      inputs.push_back(std::move(input));
    }
    const std::string bytes = write_bundle("1", std::string(64, '0'), std::move(inputs)).value();
    path = (std::filesystem::temp_directory_path() / "attnloom-bench-XXXXXX").string();
    if (::mkdtemp(path.data()) == nullptr) return;
    std::ofstream(path + "/b.alb", std::ios::binary) << bytes;
    size = bytes.size();
  }
  ~Bundle() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }

  SigningKey key = SigningKey::generate();
  std::string path;
  std::size_t size = 0;
};

const Bundle& bundle() {
  static const Bundle only;
  return only;
}

StoreOptions options_of(bool trust_keys) {
  StoreOptions options{.read_only = {bundle().path + "/b.alb"}};
  if (trust_keys)
    options.trust_keys = std::make_shared<const TrustedKeys>(
        TrustedKeys::parse(bundle().key.public_pem(), "bench").value());
  return options;
}

void open_bundle(benchmark::State& state) {
  const auto files = make_real_file_system();
  const StoreOptions options = options_of(false);  // makes the bundle
  for (auto _ : state) {
    const Store store(*files, options);
    if (store.bundles().size() != 1) return state.SkipWithError("not opened");
  }
  state.counters["entries"] = kEntries;
  state.counters["bytes"] = static_cast<double>(bundle().size);
}
BENCHMARK(open_bundle)->Unit(benchmark::kMicrosecond);

void hit(benchmark::State& state, bool trust_keys) {
  const auto files = make_real_file_system();
  Store store(*files, options_of(trust_keys));
  const std::string key = request_key(source_of(7));
  for (auto _ : state)
    if (!store.find(key, "sm_90a", {}, 0)) return state.SkipWithError("a miss");
}
BENCHMARK_CAPTURE(hit, bundle, false)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(hit, signed_bundle, true)->Unit(benchmark::kMicrosecond);

void pack(benchmark::State& state) {
  const std::string entry = entry_of(1);
  for (auto _ : state)
    benchmark::DoNotOptimize(write_bundle("1", "", {{entry, "", Json()}}).value());
}
BENCHMARK(pack)->Unit(benchmark::kMillisecond);

}  // namespace
