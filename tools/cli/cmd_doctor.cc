// SPDX-License-Identifier: Apache-2.0
// attnloom doctor: what this machine has, where it was looked for, and why the cache is where it
// is. Every step stands for itself, so a machine without driver, compiler or home directory still
// gets the whole list.
#include <filesystem>
#include <iostream>

#include "base/files.h"
#include "base/joined.h"
#include "cache/read_only_place.h"
#include "compile/toolchain.h"
#include "engine/settings.h"
#include "render/render.h"
#include "runtime/cuda.h"
#include "runtime/driver_policy.h"
#include "sim/device.h"
#include "tools/cli/output.h"
#include "tools/cli/session.h"

namespace attnloom::cli {
namespace {

struct DoctorOptions {
  CommonOptions common;
};

Json error_json(const Status& status) {
  return {{"code", code_name(status.code)},
          {"path", status.path},
          {"cause", status.cause},
          {"remedy", status.remedy}};
}

Json nvrtc_json(const NvrtcSearch& search) {
  const NvrtcProbe probe = probe_nvrtc(search);
  Json json = {{"tried", probe.tried}, {"found", nullptr}, {"version", nullptr}};
  if (probe.found.empty()) return json;
  json["found"] = probe.found;
  json["version"] = std::to_string(probe.major) + "." + std::to_string(probe.minor);
  return json;
}

Json device_json(const DeviceInfo& device) {
  return {{"name", device.name},
          {"target", device.target.name()},
          {"sm_count", device.sm_count},
          {"shared_bytes_per_cta", device.shared_bytes_per_cta},
          {"driver", driver_version_text(device.driver_version)}};
}

Json driver_json() {
  const Result<std::unique_ptr<Backend>> cuda = make_cuda_backend("");
  if (!cuda.ok()) return {{"device", nullptr}, {"error", error_json(cuda.status())}};
  return {{"device", device_json(cuda.value()->device())}, {"error", nullptr}};
}

// Entries and their bytes below a cache directory. What cannot be read counts as nothing: the
// refusal says why.
Json folder_json(const std::string& root) {
  std::uint64_t entries = 0;
  std::uint64_t bytes = 0;
  std::error_code error;
  using Walk = std::filesystem::recursive_directory_iterator;
  for (Walk at(root, std::filesystem::directory_options::skip_permission_denied, error), end;
       !error && at != end; at.increment(error)) {
    if (at->path().extension() != ".alk" || !at->is_regular_file(error) || error) continue;
    ++entries;
    bytes += at->file_size(error);
  }
  return {{"path", root}, {"entries", entries}, {"bytes", bytes}};
}

// A read-only place as the store sees it: whether it is used, and what a bundle was made for.
Json place_json(FileSystem& files, const std::string& named, bool has_keys) {
  const ReadOnlyPlace place(files, named);
  const BundleFile* bundle = place.bundle();
  Json json = bundle == nullptr ? folder_json(place.path())
                                : Json{{"path", place.path()},
                                       {"entries", bundle->index().entries.size()},
                                       {"bytes", files.info(place.path()).bytes}};
  json["kind"] = place.layer() == Layer::kBundle ? "bundle" : "directory";
  json["targets"] = bundle == nullptr ? Json() : Json(bundle_targets(bundle->index()));
  std::string refused = place.trouble().ok() ? place.distrust() : place.trouble().cause;
  if (place.trouble().ok() && has_keys) refused.clear();  // signatures decide, one by one
  if (refused.empty() && bundle != nullptr && bundle->index().templates != template_set_digest())
    refused = "it is a bundle for templates " + bundle->index().templates.substr(0, 12) +
              ", the library has " + template_set_digest().substr(0, 12);
  json["refused"] = refused;
  return json;
}

Json cache_json(FileSystem& files, const Settings& settings) {
  StoreOptions options;
  options.root = settings.cache_root.value;
  const Store store(files, options);
  Json json = folder_json(options.root);
  json["origin"] = settings.cache_root.origin;
  json["refused"] = store.root_refusal();
  json["read_only"] = Json::array();
  for (const std::string& named : settings.read_only)
    json["read_only"].push_back(place_json(files, named, settings.trusted != nullptr));
  return json;
}

Json environment_json(const Environment& environment) {
  Json json = Json::object();
  for (const VariableRow& row : environment_table()) {
    const std::string value = environment.get(std::string(row.name));
    // Such an address is refused as a setting; its password must not get into a report either.
    const bool secret =
        value.find("://") != std::string::npos && value.find('@') != std::string::npos;
    json[std::string(row.name)] = value.empty() ? Json() : Json(secret ? "(not shown)" : value);
  }
  return json;
}

Json report(const DoctorOptions& options) {
  const std::unique_ptr<FileSystem> files = make_real_file_system();
  const Environment environment = read_environment();
  Json json = {{"version", ATTNLOOM_VERSION},
               {"environment", environment_json(environment)},
               {"problem", nullptr}};
  Result<Settings> settings = resolve_settings(options.common.settings, environment, *files);
  if (settings.ok()) {
    json["nvrtc"] = nvrtc_json(settings->search);
    json["cache"] = cache_json(*files, settings.value());
    json["settings"] = settings_to_json(settings.value());
  } else {
    json["problem"] = error_json(settings.status());
  }
  json["cuda"] = driver_json();
  json["simulators"] = Json::array();
  for (const sim::Profile& profile : sim::profiles()) {
    json["simulators"].push_back(
        {{"name", profile.name}, {"target", profile.target}, {"sm_count", profile.sm_count}});
  }
  return json;
}

std::string text_of(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

void print_cache(const Json& cache) {
  const std::string root = text_of(cache["path"]);
  std::cout << "cache: " << (root.empty() ? "none" : root) << " (" << text_of(cache["origin"])
            << "), " << cache["entries"] << " entries, " << cache["bytes"] << " bytes\n";
  if (const std::string refused = text_of(cache["refused"]); !refused.empty()) {
    std::cout << "  not used: " << refused << '\n';
  }
  for (const Json& folder : cache["read_only"]) {
    std::cout << "  read-only " << text_of(folder["kind"]) << ": " << text_of(folder["path"])
              << ", " << folder["entries"] << " entries, " << folder["bytes"] << " bytes";
    for (const Json& target : folder["targets"]) std::cout << ", " << text_of(target);
    if (!text_of(folder["refused"]).empty())
      std::cout << "; not used: " << text_of(folder["refused"]);
    std::cout << '\n';
  }
}

// What is asked over a network, and whose signatures count: as they were named, or not at all.
void print_trust(const Json& settings) {
  const Json& keys = settings["trust_keys"];
  std::cout << "trusted keys: "
            << (keys["key_ids"].empty()
                    ? "none"
                    : joined(keys["key_ids"].get<std::vector<std::string>>()) + " (" +
                          text_of(keys["path"]) + ", " + text_of(keys["origin"]) + ")")
            << '\n';
  for (const auto& [label, name] :
       {std::pair("remote cache", "remote"), std::pair("compile service", "compile_url")}) {
    const std::string url = text_of(settings[name]["url"]);
    std::cout << label << ": " << (url.empty() ? "none" : url);
    if (!url.empty()) std::cout << " (" << text_of(settings[name]["origin"]) << ')';
    if (!url.empty() && settings["offline"]["value"]) std::cout << "; not asked: offline";
    std::cout << '\n';
  }
}

void print_text(const Json& json) {
  std::cout << "attnloom " << text_of(json["version"]) << '\n';
  if (!json["problem"].is_null()) {
    const Json& problem = json["problem"];
    std::cout << "problem: " << text_of(problem["path"]) << ": " << text_of(problem["cause"])
              << " (" << text_of(problem["remedy"]) << ")\n";
  } else {
    const Json& nvrtc = json["nvrtc"];
    std::cout << "NVRTC: " << (nvrtc["found"].is_null() ? "not found" : text_of(nvrtc["found"]))
              << '\n';
    if (!nvrtc["version"].is_null()) std::cout << "  version " << text_of(nvrtc["version"]) << '\n';
    for (const Json& line : nvrtc["tried"]) std::cout << "  tried " << text_of(line) << '\n';
    print_cache(json["cache"]);
    print_trust(json["settings"]);
    std::cout << "locks: " << text_of(json["settings"]["lock_dir"]["path"]) << " ("
              << text_of(json["settings"]["lock_dir"]["origin"]) << ")\n";
  }
  const Json& cuda = json["cuda"];
  if (cuda["device"].is_null()) {
    std::cout << "CUDA: " << text_of(cuda["error"]["code"]) << ": "
              << text_of(cuda["error"]["cause"]) << '\n';
  } else {
    std::cout << "CUDA: " << text_of(cuda["device"]["name"]) << ", "
              << text_of(cuda["device"]["target"]) << ", driver "
              << text_of(cuda["device"]["driver"]) << '\n';
  }
  for (const Json& profile : json["simulators"]) {
    std::cout << "simulator: " << text_of(profile["name"]) << ", " << text_of(profile["target"])
              << ", " << profile["sm_count"] << " SMs\n";
  }
  for (const auto& [name, value] : json["environment"].items()) {
    if (!value.is_null()) std::cout << name << '=' << text_of(value) << '\n';
  }
}

// A missing compiler or driver is a fact; a place that somebody named and that cannot be used is a
// fault.
Result<int> run(const DoctorOptions& options) {
  const Json json = report(options);
  if (options.common.json)
    print_json(json);
  else
    print_text(json);
  return json["problem"].is_null() ? kAgrees : kEnvironment;
}

}  // namespace

void add_doctor(CLI::App& program, Invocation& invocation) {
  add_command<DoctorOptions>(program, invocation, "doctor",
                             "say what this machine has and where things are",
                             std::make_shared<DoctorOptions>(), run);
}

}  // namespace attnloom::cli
