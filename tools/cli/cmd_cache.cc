// SPDX-License-Identifier: Apache-2.0
// attnloom cache: what lies in the writable cache, and what is to stay there. Nothing is compiled.
#include <algorithm>
#include <iostream>
#include <set>

#include "base/byte_size.h"
#include "cache/inspection.h"
#include "cache/layout.h"
#include "tools/cli/bundle_command.h"
#include "tools/cli/output.h"
#include "tools/cli/own_cache.h"

namespace attnloom::cli {
namespace {

struct CacheOptions {
  CommonOptions common;
  std::vector<std::string> keys;
  bool details = false;     // ls --long
  bool quarantine = false;  // verify --quarantine
  bool pinned = false;      // clear --pinned
  bool failures = false;    // clear --failures
};

std::string name_of(const OwnFile& entry) {
  return layout::entry_name(entry.request_key, entry.fingerprint);
}

// The target and kernels of an entry; what cannot be read is shown as nothing, `verify` says why.
void add_details(const OwnCache& cache, const OwnFile& file, Json& row) {
  row["target"] = nullptr;
  row["kernels"] = Json::array();
  const Result<std::string> bytes = cache.files->read(file.path);
  if (!bytes.ok()) return;
  const Result<Entry> entry = decode_entry(*bytes, Unpack::kCubinOnly);
  if (!entry.ok()) return;
  row["target"] = entry->artifact.target;
  for (const EntryFigures& figures : entry->artifact.entries)
    row["kernels"].push_back({{"name", figures.name}, {"registers", figures.registers}});
}

Result<int> list(const CacheOptions& options) {
  ATTNLOOM_TRY(const OwnCache cache, need_own_cache(options.common));
  const std::set<std::string> pinned = cache.root->care()->pins().all();
  std::vector<OwnFile> entries = list_entries(*cache.files, cache.base);
  std::stable_sort(entries.begin(), entries.end(),
                   [](const OwnFile& a, const OwnFile& b) { return a.mtime_ns > b.mtime_ns; });
  Json rows = Json::array();
  for (const OwnFile& entry : entries) {
    Json row = {{"request_key", entry.request_key},
                {"fingerprint", entry.fingerprint},
                {"bytes", entry.bytes},
                {"used", time_text(entry.mtime_ns)},
                {"pinned", pinned.count(entry.request_key) != 0}};
    if (options.details) add_details(cache, entry, row);
    rows.push_back(std::move(row));
  }
  if (options.common.json) {
    print_json({{"path", cache.root->path()}, {"entries", std::move(rows)}});
    return kAgrees;
  }
  for (const Json& row : rows) {
    std::cout << row["request_key"].get<std::string>() << ' '
              << row["fingerprint"].get<std::string>() << ' ' << row["used"].get<std::string>()
              << ' ' << row["bytes"] << (row["pinned"].get<bool>() ? " pinned" : "") << '\n';
    if (!options.details) continue;
    std::cout << "  "
              << (row["target"].is_null() ? "unreadable" : row["target"].get<std::string>());
    for (const Json& kernel : row["kernels"]) {
      std::cout << ", " << kernel["name"].get<std::string>() << ' ' << kernel["registers"]
                << " registers";
    }
    std::cout << '\n';
  }
  return kAgrees;
}

Json toolchains_json(const OwnCache& cache, const std::vector<OwnFile>& entries) {
  Json rows = Json::array();
  for (const Fingerprint& compiler : cache.root->toolchains()) {
    std::vector<OwnFile> own;
    std::copy_if(entries.begin(), entries.end(), std::back_inserter(own),
                 [&](const OwnFile& entry) { return entry.fingerprint == compiler.hex; });
    rows.push_back(
        {{"fingerprint", compiler.hex},
         {"nvrtc", std::to_string(compiler.cuda_major) + "." + std::to_string(compiler.cuda_minor)},
         {"least_driver", compiler.least_driver},
         {"entries", own.size()},
         {"bytes", bytes_of(own)}});
  }
  return rows;
}

std::size_t names_in(const OwnCache& cache, const std::string& folder) {
  const auto names = cache.files->list(folder);
  return names.ok() ? names->size() : 0;
}

Result<int> statistics(const CacheOptions& options) {
  ATTNLOOM_TRY(const OwnCache cache, need_own_cache(options.common));
  const std::vector<OwnFile> entries = list_entries(*cache.files, cache.base);
  const std::set<std::string> keys = cache.root->care()->pins().all();
  std::vector<OwnFile> pinned;
  std::copy_if(entries.begin(), entries.end(), std::back_inserter(pinned),
               [&](const OwnFile& entry) { return keys.count(entry.request_key) != 0; });
  const auto older = [](const OwnFile& a, const OwnFile& b) { return a.mtime_ns < b.mtime_ns; };
  const auto [oldest, newest] = std::minmax_element(entries.begin(), entries.end(), older);
  const bool any = !entries.empty();
  const Json json = {
      {"path", cache.root->path()},
      {"max_bytes", cache.settings.cache_max_bytes},
      {"entries", entries.size()},
      {"bytes", bytes_of(entries)},
      {"pinned", {{"keys", keys.size()}, {"entries", pinned.size()}, {"bytes", bytes_of(pinned)}}},
      {"used_first", any ? Json(time_text(oldest->mtime_ns)) : Json()},
      {"used_last", any ? Json(time_text(newest->mtime_ns)) : Json()},
      {"failures", list_failures(*cache.files, cache.base).size()},
      {"quarantined", names_in(cache, layout::quarantine(cache.base))},
      {"temps", names_in(cache, layout::temps(cache.base))},
      {"toolchains", toolchains_json(cache, entries)}};
  if (options.common.json) {
    print_json(json);
    return kAgrees;
  }
  std::cout << cache.root->path() << ": " << entries.size() << " entries, "
            << byte_size_text(bytes_of(entries)) << " of "
            << byte_size_text(cache.settings.cache_max_bytes) << '\n';
  if (any)
    std::cout << "last used: " << time_text(oldest->mtime_ns) << " to "
              << time_text(newest->mtime_ns) << '\n';
  std::cout << "pinned: " << keys.size() << " keys, " << byte_size_text(bytes_of(pinned))
            << "\nfailures: " << json["failures"] << ", quarantined: " << json["quarantined"]
            << ", unfinished: " << json["temps"] << '\n';
  for (const Json& row : json["toolchains"]) {
    std::cout << "NVRTC " << row["nvrtc"].get<std::string>() << " ("
              << row["fingerprint"].get<std::string>() << "): " << row["entries"] << " entries, "
              << byte_size_text(row["bytes"].get<std::uint64_t>()) << '\n';
  }
  return kAgrees;
}

Result<int> collect(const CacheOptions& options) {
  ATTNLOOM_TRY(const OwnCache cache, need_own_cache(options.common));
  // Nothing was ever written: there is nothing to collect, and nothing is to be made.
  const bool empty = !cache.files->info(cache.base).exists;
  if (!empty) ATTNLOOM_CHECK(cache.root->prepare());
  Collection done = empty ? Collection{.ran = true} : cache.root->care()->collect();
  if (options.common.json) {
    print_json({{"ran", done.ran},
                {"entries", done.entries},
                {"bytes", done.bytes},
                {"max_bytes", cache.settings.cache_max_bytes},
                {"evicted", done.evicted},
                {"evicted_bytes", done.evicted_bytes},
                {"pinned_bytes", done.pinned_bytes},
                {"temps", done.temps},
                {"failures", done.failures}});
  } else if (!done.ran) {
    std::cout << "another process is collecting\n";
  } else {
    std::cout << "evicted " << done.evicted << " of " << done.entries << " entries ("
              << byte_size_text(done.evicted_bytes) << " of " << byte_size_text(done.bytes)
              << "), removed " << done.temps << " unfinished files and " << done.failures
              << " expired failures\n";
  }
  return kAgrees;
}

struct Checked {
  std::size_t entries = 0;
  Json bad = Json::array();
};

void verify_place(FileSystem& files, const std::string& base, OwnRoot* own, Checked& checked) {
  for (const OwnFile& entry : list_entries(files, base)) {
    ++checked.entries;
    const Result<std::string> bytes = files.read(entry.path);
    const std::string fault =
        bytes.ok() ? inspect_entry(*bytes, name_of(entry)).fault : bytes.status().cause;
    if (fault.empty()) continue;
    // Reading it as a look-up does moves it aside.
    if (own != nullptr) (void)own->read(entry.request_key, entry.fingerprint, Unpack::kAll);
    checked.bad.push_back(
        {{"path", entry.path}, {"cause", fault}, {"quarantined", !files.info(entry.path).exists}});
  }
}

void verify_bundle(const ReadOnlyPlace& bundle, Checked& checked) {
  const auto add = [&](const std::string& path, const std::string& cause) {
    checked.bad.push_back({{"path", path}, {"cause", cause}, {"quarantined", false}});
  };
  if (!bundle.trouble().ok()) return add(bundle.path(), bundle.trouble().cause);
  for (const auto& name : bundle.list()) {
    ++checked.entries;
    const Result<CheckedEntry> entry = check_entry(bundle, name);
    if (!entry.ok()) add(entry.status().path, entry.status().cause);
  }
}

Result<int> verify(const CacheOptions& options) {
  ATTNLOOM_TRY(const OwnCache cache, need_own_cache(options.common));
  Checked checked;
  verify_place(*cache.files, cache.base, options.quarantine ? cache.root.get() : nullptr, checked);
  for (const std::string& named : cache.settings.read_only) {
    const ReadOnlyPlace place(*cache.files, named);
    if (place.layer() == Layer::kBundle)
      verify_bundle(place, checked);
    else
      verify_place(*cache.files, layout::base(place.path()), nullptr, checked);
  }
  if (options.common.json) {
    print_json({{"checked", checked.entries}, {"bad", checked.bad}});
  } else {
    for (const Json& bad : checked.bad) {
      std::cout << bad["path"].get<std::string>() << ": " << bad["cause"].get<std::string>()
                << (bad["quarantined"].get<bool>() ? " (moved to quarantine)" : "") << '\n';
    }
    std::cout << checked.entries << " entries checked, " << checked.bad.size() << " bad\n";
  }
  return checked.bad.empty() ? kAgrees : kDiffers;
}

Result<int> clear(const CacheOptions& options) {
  ATTNLOOM_TRY(const OwnCache cache, need_own_cache(options.common));
  RootCare& care = *cache.root->care();
  Cleared done;
  if (options.failures) {
    done.failures = static_cast<std::uint64_t>(care.failures().sweep(care.now_ns(), true));
  } else {
    done = care.clear(options.pinned ? ClearPinned::kYes : ClearPinned::kNo);
  }
  if (options.common.json) {
    print_json({{"entries", done.entries},
                {"bytes", done.bytes},
                {"failures", done.failures},
                {"quarantined", done.quarantined}});
  } else {
    std::cout << "removed " << done.entries << " entries (" << byte_size_text(done.bytes) << "), "
              << done.failures << " failures, " << done.quarantined << " quarantined files\n";
  }
  return kAgrees;
}

Result<int> pin(const CacheOptions& options) {
  ATTNLOOM_TRY(const OwnCache cache, need_own_cache(options.common));
  const std::set<std::string> present = keys_of(list_entries(*cache.files, cache.base));
  std::vector<std::string> keys;
  for (const std::string& text : options.keys) {
    ATTNLOOM_TRY(std::string key, key_of(text, present));
    keys.push_back(std::move(key));
  }
  ATTNLOOM_CHECK(cache.root->prepare());
  ATTNLOOM_CHECK(cache.root->care()->pins().add(keys));
  Json rows = Json::array();
  for (const std::string& key : keys) {
    const bool is_present = present.count(key) != 0;
    rows.push_back({{"request_key", key}, {"present", is_present}});
    if (!options.common.json) std::cout << key << (is_present ? "" : " (no entry yet)") << '\n';
  }
  if (options.common.json) print_json({{"pinned", std::move(rows)}});
  return kAgrees;
}

// Digits name pins here, not entries: a pin may stand for an entry that is still to come.
Result<int> unpin(const CacheOptions& options) {
  ATTNLOOM_TRY(const OwnCache cache, need_own_cache(options.common));
  const std::set<std::string> pinned = cache.root->care()->pins().all();
  std::vector<std::string> keys;
  for (const std::string& text : options.keys) {
    ATTNLOOM_TRY(std::string key, key_of(text, pinned, "no pin has"));
    keys.push_back(std::move(key));
  }
  ATTNLOOM_CHECK(cache.root->care()->pins().remove(keys));
  Json rows = Json::array();
  for (const std::string& key : keys) {
    const bool was_pinned = pinned.count(key) != 0;
    rows.push_back({{"request_key", key}, {"was_pinned", was_pinned}});
    if (!options.common.json) std::cout << key << (was_pinned ? "" : " (was not pinned)") << '\n';
  }
  if (options.common.json) print_json({{"unpinned", std::move(rows)}});
  return kAgrees;
}

}  // namespace

void add_cache(CLI::App& program, Invocation& invocation) {
  CLI::App& cache = *program.add_subcommand("cache", "look after the writable cache");
  cache.require_subcommand(1);
  const auto add = [&](const std::string& name, const std::string& help,
                       Result<int> (*action)(const CacheOptions&)) {
    auto options = std::make_shared<CacheOptions>();
    CLI::App& command = add_command<CacheOptions>(cache, invocation, name, help, options, action);
    return std::pair<CLI::App&, CacheOptions&>(command, *options);
  };
  auto [ls, ls_options] = add("ls", "list the entries, the last used first", list);
  ls.add_flag("-l,--long", ls_options.details, "read each entry: target, kernels, registers");
  add("stats", "count what lies there", statistics);
  add("gc", "evict down to the limit, and sweep what is left over", collect);
  auto [check, check_options] = add("verify", "read and check every entry", verify);
  check.add_flag("--quarantine", check_options.quarantine,
                 "move bad entries of the writable cache aside");
  auto [empty, empty_options] = add("clear", "remove all entries that are not pinned", clear);
  auto* all = empty.add_flag("--pinned", empty_options.pinned, "remove pinned entries as well");
  empty.add_flag("--failures", empty_options.failures, "remove kept failures only")->excludes(all);
  for (const bool pins : {true, false}) {
    auto [command, key_options] = pins ? add("pin", "keep entries from eviction", pin)
                                       : add("unpin", "take pins away", unpin);
    command.add_option("KEY", key_options.keys, "request_key, or its first digits")->required();
  }
}

}  // namespace attnloom::cli
