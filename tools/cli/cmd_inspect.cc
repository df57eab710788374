// SPDX-License-Identifier: Apache-2.0
// attnloom inspect: one entry, by file or by key: what made it, what it holds, whether it is whole.
#include <iostream>

#include "cache/inspection.h"
#include "cache/layout.h"
#include "tools/cli/output.h"
#include "tools/cli/own_cache.h"

namespace attnloom::cli {
namespace {

struct InspectOptions {
  CommonOptions common;
  std::string entry;
};

Json entry_json(const std::string& path, const std::string& bytes) {
  const Inspection found = inspect_entry(bytes, path.substr(path.rfind('/') + 1));
  Json json = {{"path", path},
               {"bytes", bytes.size()},
               {"fault", found.fault.empty() ? Json() : Json(found.fault)}};
  if (found.metadata.empty()) return json;  // not readable at all: nothing it says is to be trusted
  const Artifact& artifact = found.entry.artifact;
  json["request_key"] = found.entry.request_key;
  json["fingerprint"] = artifact.fingerprint.hex;
  json["metadata"] = Json::parse(found.metadata, nullptr, false);
  json["cubin"] = {{"bytes", artifact.cubin.size()},
                   {"sha256", found.cubin_sha256},
                   {"tool", found.note.tool},
                   {"version", found.note.version},
                   {"target", found.note.target}};
  json["ptx"] = found.entry.has_ptx
                    ? Json{{"bytes", artifact.ptx.size()}, {"sha256", found.ptx_sha256}}
                    : Json();
  return json;
}

void print_entry(const Json& json) {
  const auto text = [](const Json& value) { return value.get<std::string>(); };
  std::cout << text(json["path"]) << ": " << json["bytes"] << " bytes, "
            << (json["fault"].is_null() ? "whole" : "BAD: " + text(json["fault"])) << '\n';
  if (!json.contains("metadata")) return;
  const Json& metadata = json["metadata"];
  const Json& compiler = metadata["compiler"];
  const Json& cubin = json["cubin"];
  std::cout << "  request_key " << text(json["request_key"]) << "\n  NVRTC "
            << compiler["cuda_major"] << '.' << compiler["cuda_minor"] << " (fingerprint "
            << text(json["fingerprint"]) << "), driver " << compiler["least_driver"]
            << " or newer\n  target " << text(metadata["target"]);
  if (!text(cubin["target"]).empty())
    std::cout << ", the cubin's own note: " << text(cubin["target"]) << ", "
              << text(cubin["version"]);
  std::cout << "\n  cubin " << cubin["bytes"] << " bytes, sha256 " << text(cubin["sha256"]) << '\n';
  if (!json["ptx"].is_null())
    std::cout << "  PTX " << json["ptx"]["bytes"] << " bytes, sha256 "
              << text(json["ptx"]["sha256"]) << '\n';
  for (const Json& entry : metadata["entries"]) {
    std::cout << "  " << text(entry["name"]) << ": " << entry["registers"] << " registers, "
              << entry["static_shared_bytes"] << " static shared bytes, " << entry["local_bytes"]
              << " local bytes, spills " << entry["spill_store_bytes"] << " + "
              << entry["spill_load_bytes"] << ", at most " << entry["max_threads"] << " threads\n";
  }
  std::cout << "  options:";
  for (const Json& option : metadata["options"]) std::cout << ' ' << text(option);
  std::cout << '\n';
}

// The entries of a key in the writable cache and the read-only directories, in search order.
Result<std::vector<std::string>> paths_of_key(const InspectOptions& options) {
  ATTNLOOM_CHECK(check_key_text(options.entry));
  ATTNLOOM_TRY(const OwnCache cache, open_own_cache(options.common));
  std::vector<OwnFile> entries;
  if (!cache.base.empty()) entries = list_entries(*cache.files, cache.base);
  for (const std::string& place : cache.settings.read_only)
    for (OwnFile& entry : list_entries(*cache.files, layout::base(place)))
      entries.push_back(std::move(entry));
  ATTNLOOM_TRY(const std::string key, key_of(options.entry, keys_of(entries)));
  std::vector<std::string> paths;
  for (const OwnFile& entry : entries)
    if (entry.request_key == key) paths.push_back(entry.path);
  if (!paths.empty()) return paths;
  return make_error(Code::kNotCached, "", "no directory holds an entry of " + key,
                    "`attnloom cache ls` lists those of the writable cache");
}

Result<int> run(const InspectOptions& options) {
  const std::unique_ptr<FileSystem> files = make_real_file_system();
  std::vector<std::string> paths = {options.entry};
  if (!files->info(options.entry).exists) {
    if (options.entry.find('/') != std::string::npos || options.entry.ends_with(".alk")) {
      return make_error(Code::kArgumentInvalid, options.entry, "there is no such file",
                        "name an entry's file, or give a request_key");
    }
    ATTNLOOM_TRY(paths, paths_of_key(options));
  }
  Json rows = Json::array();
  bool whole = true;
  for (const std::string& path : paths) {
    const Result<std::string> bytes = files->read(path);
    if (!bytes.ok()) return make_error(Code::kArgumentInvalid, path, bytes.status().cause);
    rows.push_back(entry_json(path, *bytes));
    whole = whole && rows.back()["fault"].is_null();
    if (!options.common.json) print_entry(rows.back());
  }
  if (options.common.json) print_json({{"entries", std::move(rows)}});
  return whole ? kAgrees : kDiffers;
}

}  // namespace

void add_inspect(CLI::App& program, Invocation& invocation) {
  auto options = std::make_shared<InspectOptions>();
  CLI::App& command = add_command<InspectOptions>(
      program, invocation, "inspect", "show and check one entry of a cache", options, run);
  command.add_option("ENTRY", options->entry, "an entry's file, or a request_key (first digits)")
      ->required()
      ->check(not_empty());
}

}  // namespace attnloom::cli
