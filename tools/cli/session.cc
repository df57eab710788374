// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/session.h"

#include <charconv>
#include <iostream>
#include <limits>

#include "base/byte_size.h"
#include "cache/root_care.h"
#include "tools/cli/output.h"
#include "tools/cli/progress.h"

namespace attnloom::cli {
namespace {

constexpr int kMostCompileSeconds = 86400;

Log stderr_log(bool verbose) {
  return Log(
      [](LogLevel, const std::string& line) {
        std::cerr << clear_line() << "attnloom: " << line << '\n';
      },
      verbose ? LogLevel::kDebug : LogLevel::kWarning);
}

// What was given, cut to what a line can take.
std::string given(const std::string& text) {
  return ", given " + (text.size() <= 40 ? text : text.substr(0, 40) + "...");
}

CLI::Validator cache_size() {
  return CLI::Validator(
      [](std::string& text) {
        const std::optional<std::uint64_t> bytes = parse_byte_size(text);
        return bytes && *bytes >= kLeastCacheBytes
                   ? std::string()
                   : "wanted a size of at least 64M, such as 512M or 2G" + given(text);
      },
      "");
}

}  // namespace

// CLI11's own conversion takes -1 for the largest number and cuts numbers that are too long.
CLI::Validator whole_number(std::uint64_t least, std::uint64_t most) {
  const auto check = [least, most](std::string& text) {
    std::uint64_t value = 0;
    const char* end = text.data() + text.size();
    const auto [next, error] = std::from_chars(text.data(), end, value);
    if (error == std::errc{} && next == end && value >= least && value <= most)
      return std::string();
    return "wanted a whole number from " + std::to_string(least) + " to " + std::to_string(most) +
           given(text);
  };
  return CLI::Validator(check, "");
}

CLI::Validator not_empty() {
  return CLI::Validator(
      [](std::string& text) {
        return text.empty() ? std::string("wanted a value, given an empty text") : std::string();
      },
      "");
}

void add_common_options(CLI::App& app, CommonOptions& options) {
  app.add_flag("--json", options.json, "print one JSON value on standard output");
  app.add_flag("-v,--verbose", options.verbose, "log what is done on standard error");
  app.add_option("--cache-dir", options.settings.cache_dir,
                 "writable cache directory (ATTNLOOM_CACHE_DIR)")
      ->check(not_empty());
  app.add_option("--read-only-caches", options.settings.read_only_caches,
                 "colon-separated cache directories (ATTNLOOM_CACHE_RO)");
  app.add_option("--trust-keys", options.settings.trust_keys,
                 "file of public keys that entries of other caches must be signed by "
                 "(ATTNLOOM_TRUST_KEYS)")
      ->check(not_empty());
  app.add_option("--cache-max-size", options.settings.cache_max_size,
                 "what the writable cache may hold, such as 512M or 2G (ATTNLOOM_CACHE_MAX_SIZE)")
      ->check(cache_size());
  app.add_option("--remote", options.settings.remote.remote,
                 "address of an HTTP cache (ATTNLOOM_REMOTE)")
      ->check(not_empty());
  app.add_option("--nvrtc", options.settings.nvrtc, "NVRTC library or its folder (ATTNLOOM_NVRTC)");
  app.add_flag_callback(
      "--no-jit", [&options] { options.settings.jit = false; },
      "fail on a kernel that no cache holds (ATTNLOOM_JIT)");
}

void add_device_options(CLI::App& app, CommonOptions& options) {
  app.add_option("--device", options.device,
                 "cuda, sim, or auto: cuda where there is a device, else sim")
      ->check(CLI::IsMember({"auto", "cuda", "sim"}))
      ->capture_default_str();
  app.add_option("--profile", options.profile, "the device that sim stands for (default h200)")
      ->check(CLI::IsMember({"h200", "a100"}));
  app.add_option("--seed", options.seed,
                 "of sim's order of warps and CTAs, and of what a batch leaves to chance")
      ->check(whole_number(0, std::numeric_limits<std::uint64_t>::max()))
      ->capture_default_str();
}

void add_compile_options(CLI::App& app, CommonOptions& options) {
  CLI::Option* untrusted =
      app.add_flag("--untrusted", options.untrusted.on,
                   "compile in a confined process with bounded time and memory");
  app.add_flag("--weak-sandbox", options.untrusted.weak_sandbox,
               "go on where the kernel cannot confine that process")
      ->needs(untrusted);
  app.add_option("--compile-timeout", options.compile_seconds,
                 "seconds that one compile may take (default 60)")
      ->check(whole_number(1, kMostCompileSeconds));
}

bool read_pair(const std::string& text, char between, unsigned& first, unsigned& second) {
  const char* end = text.data() + text.size();
  const auto [middle, first_error] = std::from_chars(text.data(), end, first);
  if (first_error != std::errc{} || middle == end || *middle != between) return false;
  const auto [last, second_error] = std::from_chars(middle + 1, end, second);
  return second_error == std::errc{} && last == end;
}

Result<int> parse_driver(const std::string& text) {
  if (text.empty()) return 0;
  unsigned major = 0;
  unsigned minor = 0;
  if (read_pair(text, '.', major, minor) && major >= 1 && major < 100 && minor < 100)
    return static_cast<int>(1000 * major + 10 * minor);
  return make_error(Code::kArgumentInvalid, "--driver-min",
                    "wanted the CUDA version of a driver, such as 12.8, given " + text,
                    "nvidia-smi shows it as \"CUDA Version\"");
}

DeviceKind device_kind(const CommonOptions& options) {
  if (options.device == "cuda") return DeviceKind::kCuda;
  return options.device == "sim" ? DeviceKind::kSimulator : DeviceKind::kAuto;
}

Result<std::unique_ptr<Engine>> open_engine(const CommonOptions& options, DeviceKind device) {
  SetupOptions setup;
  setup.device = device;
  setup.simulator_profile = options.profile;
  setup.simulator_seed = options.seed;
  setup.least_driver = options.least_driver;
  setup.settings = options.settings;
  setup.untrusted = options.untrusted;
  setup.compile_timeout = std::chrono::seconds(options.compile_seconds);
  return make_engine(setup, read_environment(), stderr_log(options.verbose));
}

Result<std::unique_ptr<Toolchain>> open_toolchain(const CommonOptions& options) {
  const std::unique_ptr<FileSystem> files = make_real_file_system();
  ATTNLOOM_TRY(const Settings settings,
               resolve_settings(options.settings, read_environment(), *files));
  SetupOptions setup;
  setup.untrusted = options.untrusted;
  setup.compile_timeout = std::chrono::seconds(options.compile_seconds);
  return make_toolchain(setup, settings);
}

Status check_sandbox(const CommonOptions& options) {
  if (!options.untrusted.on) return ok_status();
  ATTNLOOM_TRY(const std::unique_ptr<Toolchain> toolchain, open_toolchain(options));
  const Result<Fingerprint> fingerprint = toolchain->fingerprint();
  const bool confined = fingerprint.ok() || fingerprint.status().code != Code::kUntrusted;
  return confined ? ok_status() : fingerprint.status();
}

Result<std::optional<SigningKey>> open_signing_key(const CommonOptions& options) {
  const std::unique_ptr<FileSystem> files = make_real_file_system();
  ATTNLOOM_TRY(const Settings settings,
               resolve_settings(options.settings, read_environment(), *files));
  return settings.remote.signing_key;
}

Result<ParsedSpec> load_spec(const std::string& path) {
  ATTNLOOM_TRY(const std::string text, read_input(path));
  ATTNLOOM_TRY(const JsonDocument document, parse_json(text, Code::kSpecInvalid));
  const bool is_case = document.value.is_object() && document.value.contains("case");
  return parse_spec(document, is_case ? "$.spec" : "$");
}

Status settle_target(const CommonOptions& options, const std::string& target, Spec& spec) {
  if (!target.empty()) {
    spec.target = parse_target(target);
    if (spec.target) return ok_status();
    return make_error(Code::kArgumentInvalid, "--target",
                      "wanted sm_NN, sm_NNa or sm_NNf, given " + target,
                      "sm_90a is Hopper, sm_80 is Ampere");
  }
  if (spec.target) return ok_status();
  ATTNLOOM_TRY(const std::unique_ptr<Engine> engine, open_engine(options, device_kind(options)));
  ATTNLOOM_TRY(const Backend* device, engine->backend());
  spec.target = device->device().target;
  return ok_status();
}

std::string kernel_text(const KernelChoice& choice) {
  std::string text = choice.family;
  for (const TileClass& tile : choice.classes) {
    text += (&tile == choice.classes.data() ? " q" : " + q") + std::to_string(tile.q) + " kv" +
            std::to_string(tile.kv);
  }
  return text;
}

}  // namespace attnloom::cli
