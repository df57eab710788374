// SPDX-License-Identifier: Apache-2.0
// attnloom bundle: entries as one file. docs/CACHE.md has the format, docs/SECURITY.md the keys.
#include "cache/layout.h"
#include "cache/own_root.h"
#include "tools/cli/bundle_command.h"
#include "tools/cli/output.h"
#include "tools/cli/session.h"

namespace attnloom::cli {
namespace {

using Action = Result<int> (*)(const BundleOptions&);
using Shared = std::shared_ptr<BundleOptions>;

CLI::App& add_action(CLI::App& bundle, Invocation& invocation, const char* name, const char* help,
                     const Shared& options, Action action) {
  CLI::App& command = *bundle.add_subcommand(name, help);
  command.add_flag("--json", options->json, "print one JSON value on standard output");
  command.callback([options, action, &invocation] {
    options->json |= invocation.json;
    invocation.action = [options, action] { return action(*options); };
  });
  return command;
}

void add_paths(CLI::App& command, const Shared& options, int least, int most) {
  command.add_option("PATH", options->paths, "cache directory, bundle, or bundle#sha256=HEX")
      ->expected(least, most)
      ->required();
}

void add_cache_dir(CLI::App& command, const Shared& options) {
  command
      .add_option("--cache-dir", options->settings.cache_dir,
                  "the writable cache (ATTNLOOM_CACHE_DIR)")
      ->check(not_empty());
}

void add_trust_keys(CLI::App& command, const Shared& options) {
  command
      .add_option("--trust-keys", options->settings.trust_keys,
                  "file of public keys that count (ATTNLOOM_TRUST_KEYS)")
      ->check(not_empty());
}

void add_target(CLI::App& command, const Shared& options, const char* help) {
  command.add_option("--target", options->targets, help)->delimiter(',')->check(not_empty());
}

void add_export(CLI::App& bundle, Invocation& invocation) {
  const auto options = std::make_shared<BundleOptions>();
  CLI::App& command = add_action(bundle, invocation, "export", "write entries into one file",
                                 options, bundle_export);
  command.add_option("-o,--output", options->output, "the bundle; replaced whole")
      ->required()
      ->check(not_empty());
  command.add_option("--from", options->from,
                     "cache directory or bundle to take entries of (default: the writable cache)");
  add_target(command, options, "only entries for these");
  command.add_option("--describe", options->describe,
                     "spec whose kernels the index names, for people");
  command.add_option("--key", options->key, "sign with this private key")->check(not_empty());
  command.add_flag("--ptx", options->ptx, "keep the PTX, which only the simulator needs");
  add_cache_dir(command, options);
  add_trust_keys(command, options);
}

}  // namespace

void add_bundle(CLI::App& program, Invocation& invocation) {
  CLI::App& bundle = *program.add_subcommand("bundle", "pack, unpack, sign and check entries");
  // CLI11 would take `bundle --json ls` for the flag of the program alone.
  bundle.add_flag("--json", invocation.json, "print one JSON value on standard output");
  bundle.require_subcommand(1);
  add_export(bundle, invocation);
  const auto add = [&](const char* name, const char* help, Action action, int least, int most,
                       const std::vector<void (*)(CLI::App&, const Shared&)>& more) {
    const auto options = std::make_shared<BundleOptions>();
    CLI::App& command = add_action(bundle, invocation, name, help, options, action);
    add_paths(command, options, least, most);
    for (const auto& add_options : more) add_options(command, options);
  };
  constexpr int kMany = 1 << 20;
  add("import", "put entries into the writable cache", bundle_import, 1, kMany,
      {add_cache_dir, add_trust_keys});
  add("verify", "check every entry; 1 where one fails or a target is missing", bundle_verify, 1,
      kMany, {add_trust_keys, [](CLI::App& command, const Shared& options) {
                add_target(command, options, "there must be entries for each of these");
              }});
  add("diff", "compare two by their entries; 1 where they differ", bundle_diff, 2, 2, {});
  add("ls", "list entries and targets", bundle_ls, 1, 1, {});
  add("sign", "add a signature to every entry", bundle_sign, 1, kMany,
      {add_trust_keys, [](CLI::App& command, const Shared& options) {
         command.add_option("--key", options->key, "private key (attnloom keygen)")
             ->required()
             ->check(not_empty());
       }});
}

Result<Settings> bundle_settings(const BundleOptions& options, FileSystem& files) {
  SettingOptions settings = options.settings;
  settings.look_only = true;
  return resolve_settings(settings, read_environment(), files);
}

Result<ReadOnlyPlace> open_place(FileSystem& files, const std::string& named) {
  ReadOnlyPlace place(files, named);
  if (!place.trouble().ok()) {
    Status error = place.trouble();
    if (error.path.empty()) error.path = named;
    return error;
  }
  if (!files.info(place.path()).exists)
    return make_error(Code::kArgumentInvalid, named, "there is no such directory or bundle");
  return place;
}

Status no_entries(const std::string& named) {
  return make_error(Code::kNotCached, named, "there is no entry",
                    "name a cache directory (the one that holds v1) or a bundle");
}

Status at_entry(Status error, const ReadOnlyPlace& place,
                const std::pair<std::string, std::string>& name) {
  error.path = place.path() + ": " + layout::entry_name(name.first, name.second);
  return error;
}

Result<CheckedEntry> check_entry(const ReadOnlyPlace& place,
                                 const std::pair<std::string, std::string>& name) {
  Result<StoredEntry> stored = place.read(name.first, name.second);
  if (!stored.ok()) return at_entry(stored.status(), place, name);
  Result<Entry> entry = decode_entry(stored->bytes, Unpack::kAll);
  if (const std::string reason = refuse_entry(entry, name.first, name.second); !reason.empty())
    return at_entry(make_error(Code::kCacheCorrupt, "", reason), place, name);
  return CheckedEntry{std::move(stored).value(), std::move(entry).value()};
}

}  // namespace attnloom::cli
