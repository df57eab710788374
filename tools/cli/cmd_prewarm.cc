// SPDX-License-Identifier: Apache-2.0
// attnloom prewarm: every kernel of a manifest into the cache. Uses no device.
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <iostream>

#include "engine/kernel_set.h"
#include "engine/manifest.h"
#include "engine/prewarm.h"
#include "tools/cli/output.h"
#include "tools/cli/progress.h"
#include "tools/cli/session.h"

namespace attnloom::cli {
namespace {

constexpr int kMostJobs = 256;

struct PrewarmCommandOptions {
  CommonOptions common;
  std::string manifest;
  std::vector<std::string> logs;  // in its place
  std::vector<std::string> targets;
  std::string least_driver;
  std::string shard;
  int jobs = 0;  // 0: one a core
  bool check = false;
  bool events = false;
  bool quiet = false;
};

// Cores that this process may use: a container's share rather than the machine's.
int usable_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof(cores), &cores) != 0) return 1;
  return std::clamp(CPU_COUNT(&cores), 1, kMostJobs);
}

Result<PrewarmShard> parse_shard(const std::string& text) {
  PrewarmShard shard;
  if (text.empty()) return shard;
  unsigned index = 0;
  unsigned count = 0;
  if (!read_pair(text, '/', index, count) || index >= count)
    return make_error(Code::kArgumentInvalid, "--shard",
                      "wanted I/N with I from 0 and below N, given " + text);
  return PrewarmShard{index, count};
}

Result<std::vector<Target>> parse_targets(const std::vector<std::string>& names) {
  std::vector<Target> targets;
  for (const std::string& name : names) {
    const std::optional<Target> target = parse_target(name);
    if (!target)
      return make_error(Code::kArgumentInvalid, "--target",
                        "wanted sm_NN, sm_NNa or sm_NNf, given " + name,
                        "sm_90a is Hopper, sm_80 is Ampere");
    targets.push_back(*target);
  }
  return targets;
}

Result<Manifest> load_manifest(const PrewarmCommandOptions& options) {
  ManifestOptions how;
  ATTNLOOM_TRY(how.targets, parse_targets(options.targets));
  const std::filesystem::path folder = std::filesystem::path(options.manifest).parent_path();
  how.read_file = [&](const std::string& path) { return read_input((folder / path).string()); };
  if (options.manifest.empty() == options.logs.empty())
    return make_error(Code::kArgumentInvalid, "--from-log",
                      "wanted either a manifest or access logs");
  if (!options.logs.empty()) {
    ATTNLOOM_TRY(const LogManifest made, read_access_logs(options.logs));
    return parse_manifest(made.manifest.dump(), how);
  }
  ATTNLOOM_TRY(const std::string text, read_input(options.manifest));
  return parse_manifest(text, how);
}

bool is_missing(const PrewarmRow& row) {
  return row.status.code == Code::kNotCached;
}

// "disk" and "readonly" are layers, "compiled" is the compiler: what a row is, in one word.
std::string state_of(const PrewarmRow& row) {
  if (row.status.ok()) return row.origin;
  return is_missing(row) ? "missing" : "failed";
}

std::string line_of(const PrewarmRow& row) {
  char seconds[32];
  std::snprintf(seconds, sizeof(seconds), "%.2f s", row.seconds);
  std::string line = state_of(row) + " " + row.label + ", " + row.target;
  if (!row.choice.family.empty()) line += ", " + kernel_text(row.choice);
  if (row.status.ok()) return line + ", " + seconds;
  return line + ": " + row.status.to_string();
}

Json row_json(const PrewarmRow& row) {
  Json json = {{"label", row.label},
               {"target", row.target},
               {"family", row.choice.family},
               {"classes", classes_json(row.choice)},
               {"request_key", row.request_key},
               {"key", row.kernel_key},
               {"source", row.origin},
               {"state", state_of(row)},
               {"seconds", row.seconds},
               {"error", nullptr}};
  if (!row.status.ok())
    json["error"] = {{"code", code_name(row.status.code)},
                     {"path", row.status.path},
                     {"cause", row.status.cause},
                     {"remedy", row.status.remedy}};
  return json;
}

Json summary_json(const PrewarmReport& report, const PrewarmShard& shard, const std::string& root) {
  std::size_t compiled = 0;
  std::size_t missing = 0;
  std::size_t failed = 0;
  for (const PrewarmRow& row : report.rows) {
    if (row.origin == "compiled") ++compiled;
    if (!row.status.ok()) ++(is_missing(row) ? missing : failed);
  }
  return {{"ready", report.rows.size() - missing - failed},
          {"compiled", compiled},
          {"missing", missing},
          {"failed", failed},
          {"duplicates", report.duplicates},
          {"other_shards", report.elsewhere},
          {"pinned", report.pinned},
          {"shard", std::to_string(shard.index) + "/" + std::to_string(shard.count)},
          {"cache", root}};
}

// A machine that cannot compile says so to a pipeline, rather than that kernels are wrong.
int status_of(const PrewarmReport& report) {
  int status = kAgrees;
  for (const PrewarmRow& row : report.rows) {
    const Code code = row.status.code;
    if (code == Code::kCompilerMissing || code == Code::kCompilerVersion ||
        code == Code::kDriverTooOld)
      return kEnvironment;
    if (!row.status.ok()) status = kDiffers;
  }
  return status;
}

void print_event(const std::string& event, Json json) {
  json["event"] = event;
  print_json(json);
  std::cout << std::flush;
}

void print_summary(const Json& summary) {
  std::cout << summary["ready"] << " kernels ready (" << summary["compiled"] << " compiled now), "
            << summary["missing"] << " missing, " << summary["failed"] << " failed; cache "
            << summary["cache"].get<std::string>() << '\n';
}

Result<PrewarmOptions> prewarm_options(const PrewarmCommandOptions& options, Progress& progress) {
  PrewarmOptions how;
  ATTNLOOM_TRY(how.shard, parse_shard(options.shard));
  how.jobs = options.jobs > 0 ? options.jobs : usable_cores();
  how.check_only = options.check;
  how.begin = [&options, &progress](std::size_t rows) {
    if (options.events) print_event("begin", {{"kernels", rows}});
    progress.begin(rows);
  };
  how.done = [&options, &progress](const PrewarmRow& row) {
    if (options.events) print_event("kernel", row_json(row));
    progress.advance(line_of(row), !row.status.ok());
  };
  return how;
}

Result<int> prewarm_manifest(const PrewarmCommandOptions& given) {
  PrewarmCommandOptions options = given;
  ATTNLOOM_TRY(options.common.least_driver, parse_driver(options.least_driver));
  Progress progress(Progress::style_for(options.quiet));
  ATTNLOOM_TRY(PrewarmOptions how, prewarm_options(options, progress));
  ATTNLOOM_TRY(const Manifest manifest, load_manifest(options));
  how.pin = manifest.pins;
  ATTNLOOM_TRY(const std::unique_ptr<Engine> engine,
               open_engine(options.common, DeviceKind::kNone));
  const std::string root = engine->store().root();
  if (root.empty() && !options.check) {
    const std::string& refusal = engine->store().root_refusal();
    return make_error(
        Code::kCacheIo, "--cache-dir",
        "there is no writable cache to fill" + (refusal.empty() ? "" : ": " + refusal),
        "name one by --cache-dir or ATTNLOOM_CACHE_DIR");
  }
  const PrewarmReport report = prewarm(*engine, manifest.items, how);
  progress.end();
  ATTNLOOM_CHECK(report.pin_status);
  Json summary = summary_json(report, how.shard, root);
  if (options.events) {
    print_event("end", std::move(summary));
  } else if (options.common.json) {
    summary["kernels"] = Json::array();
    for (const PrewarmRow& row : report.rows) summary["kernels"].push_back(row_json(row));
    print_json(summary);
  } else {
    print_summary(summary);
  }
  return status_of(report);
}

Result<int> run(const PrewarmCommandOptions& options) {
  if (options.events && options.common.json)
    return make_error(Code::kArgumentInvalid, "--events", "stands beside --json",
                      "--json prints one value at the end, --events a line for each event");
  Result<int> status = prewarm_manifest(options);
  if (status.ok() || !options.events) return status;
  // Also a refusal is a line that a reader of events understands.
  print_error(status.status(), true);
  return static_cast<int>(exit_of(status.status()));
}

}  // namespace

void add_prewarm(CLI::App& program, Invocation& invocation) {
  auto options = std::make_shared<PrewarmCommandOptions>();
  CLI::App& command = add_command<PrewarmCommandOptions>(
      program, invocation, "prewarm", "compile the kernels of a manifest into the cache", options,
      run);
  command.add_option("MANIFEST", options->manifest, "manifest file, - for standard input");
  command
      .add_option("--from-log", options->logs,
                  "an access log (ATTNLOOM_ACCESS_LOG) in place of a manifest; may be repeated")
      ->allow_extra_args(false)
      ->check(not_empty());
  add_compile_options(command, options->common);
  command.add_option("-j,--jobs", options->jobs, "compiles at the same time (default: one a core)")
      ->check(whole_number(1, kMostJobs));
  command
      .add_option("--target", options->targets,
                  "sm_NN[a|f], comma-separated, in place of the manifest's")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(not_empty());
  command.add_flag("--check", options->check, "compile nothing: 1 when a kernel is missing");
  command
      .add_option("--driver-min", options->least_driver,
                  "CUDA version of the oldest driver that is to load the kernels, such as 12.8")
      ->check(not_empty());
  command.add_option("--shard", options->shard, "I/N: only this part of the kernels, I from 0")
      ->check(not_empty());
  command.add_flag("--events", options->events,
                   "print a JSON line for each event on standard output");
  command.add_flag("-q,--quiet", options->quiet, "show failures only, no progress");
}

}  // namespace attnloom::cli
