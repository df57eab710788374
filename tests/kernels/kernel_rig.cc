// SPDX-License-Identifier: Apache-2.0
#include "kernels/kernel_rig.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <utility>

#include "cache/key.h"
#include "engine/environment.h"
#include "engine/settings.h"
#include "runtime/sim_backend.h"
#include "tools/case/judge.h"
#include "tools/runner/own_functors.h"

namespace attnloom::testing {
namespace {

class EditingToolchain : public Toolchain {
 public:
  EditingToolchain(std::unique_ptr<Toolchain> inner, std::function<void(Source&)> edit)
      : inner_(std::move(inner)), edit_(std::move(edit)) {}
  Result<Fingerprint> fingerprint() override { return inner_->fingerprint(); }
  Result<Artifact> compile(const Source& source) override {
    Source edited = source;
    edit_(edited);
    // A mutant is compiled once for all the seeds that it runs under.
    static std::map<std::string, Artifact> compiled;
    const std::string key = request_key(edited);
    if (const auto found = compiled.find(key); found != compiled.end()) return found->second;
    Result<Artifact> artifact = inner_->compile(edited);
    if (artifact.ok()) compiled.emplace(key, *artifact);
    return artifact;
  }

 private:
  std::unique_ptr<Toolchain> inner_;
  std::function<void(Source&)> edit_;
};

std::string from_environment(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

// Private and under a sticky folder: the build tree of a user whose umask is 002 would be refused
// as a cache, since others may write above it.
std::string default_cache() {
  const std::string name = "attnloom-test-kernels-" + std::to_string(::geteuid());
  return (std::filesystem::temp_directory_path() / name).string();
}

NvrtcSearch nvrtc_search() {
  const std::unique_ptr<FileSystem> files = make_real_file_system();
  const Result<Settings> settings = resolve_settings({}, read_environment(), *files);
  REQUIRE(settings.ok());
  return settings->search;
}

std::unique_ptr<Engine> make_cached_engine(SetupOptions options) {
  options.settings.cache_dir = from_environment("ATTNLOOM_TEST_CACHE", default_cache().c_str());
  Result<std::unique_ptr<Engine>> engine = make_engine(options, read_environment(), {});
  INFO(engine.status().to_string());
  REQUIRE(engine.ok());
  return std::move(engine).value();
}

}  // namespace

bool on_cuda() {
  return from_environment("ATTNLOOM_TEST_DEVICE", "simulator") == "cuda";
}

std::unique_ptr<Toolchain> make_test_toolchain() {
  return make_nvrtc_toolchain(nvrtc_search());
}

std::unique_ptr<Engine> make_test_engine(std::uint64_t simulator_seed, const std::string& profile) {
  SetupOptions options;
  options.device = on_cuda() ? DeviceKind::kCuda : DeviceKind::kSimulator;
  options.simulator_seed = simulator_seed;
  options.simulator_profile = profile;
  return make_cached_engine(options);
}

std::unique_ptr<Engine> make_compiling_engine() {
  SetupOptions options;
  options.device = DeviceKind::kNone;
  return make_cached_engine(options);
}

std::unique_ptr<Engine> make_edited_engine(std::uint64_t simulator_seed,
                                           std::function<void(Source&)> edit) {
  EngineOptions options;
  options.make_backend = [simulator_seed]() -> Result<std::unique_ptr<Backend>> {
    return std::unique_ptr<Backend>(std::make_unique<SimBackend>(
        *sim::find_profile("h200"), sim::Options{.seed = simulator_seed}));
  };
  options.toolchain =
      std::make_unique<EditingToolchain>(make_nvrtc_toolchain(nvrtc_search()), std::move(edit));
  options.files = make_memory_file_system();
  return std::make_unique<Engine>(std::move(options));
}

std::unique_ptr<Engine> make_engine_over(
    std::function<Result<std::unique_ptr<Backend>>()> make_backend) {
  EngineOptions options;
  options.make_backend = std::move(make_backend);
  options.toolchain = make_test_toolchain();
  options.files = make_real_file_system();
  options.store.root = from_environment("ATTNLOOM_TEST_CACHE", default_cache().c_str());
  return std::make_unique<Engine>(std::move(options));
}

void replace_once(Source& source, const std::string& header, const std::string& from,
                  const std::string& to) {
  for (Header& candidate : source.headers) {
    if (candidate.name != header) continue;
    const std::size_t at = candidate.text.find(from);
    INFO(header << ": " << from);
    REQUIRE(at != std::string::npos);
    REQUIRE(candidate.text.find(from, at + 1) == std::string::npos);
    candidate.text.replace(at, from.size(), to);
    return;
  }
  FAIL("no header " << header);
}

CaseFile parse_or_fail(const std::string& json, std::uint64_t page_seed) {
  Result<CaseFile> file = parse_case(json, ".", {.page_seed = page_seed});
  INFO(file.status().to_string());
  REQUIRE(file.ok());
  return std::move(file).value();
}

std::string judge_run(const CaseFile& file, const Result<CaseRun>& run) {
  if (!run.ok()) return run.status().to_string();
  if (!run->report.findings.empty()) {
    const sim::Finding& finding = run->report.findings.front();
    return finding.kind + " at " + finding.place + ": " + finding.detail;
  }
  if (const auto expected = compare_with_expect(file, run->output); expected && !expected->pass) {
    return "expect: " + expected->failure;
  }
  bool own_functors = false;
  const std::unique_ptr<Toolchain> toolchain = make_nvrtc_toolchain(nvrtc_search());
  const Result<CaseReference> wanted = solve_by_any(*toolchain, file, own_functors);
  if (!wanted.ok()) return wanted.status().to_string();
  const reference::Comparison comparison = compare_with_reference(file, *wanted, run->output);
  return comparison.pass ? "" : "reference: " + comparison.failure;
}

}  // namespace attnloom::testing
