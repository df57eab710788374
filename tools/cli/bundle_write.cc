// SPDX-License-Identifier: Apache-2.0
// attnloom bundle export, import and sign: what makes or changes files.
#include <filesystem>
#include <iostream>
#include <map>

#include "base/sha256.h"
#include "cache/bundle_writer.h"
#include "cache/key.h"
#include "cache/layout.h"
#include "cache/own_root.h"
#include "render/headers.h"
#include "render/render.h"
#include "spec/check.h"
#include "tools/cli/bundle_command.h"
#include "tools/cli/output.h"
#include "tools/cli/session.h"

namespace attnloom::cli {
namespace {

constexpr mode_t kBundleMode = 0644;  // for other users to read
using Name = std::pair<std::string, std::string>;

// "" or a path: no key.
Result<std::optional<SigningKey>> read_key(const std::string& path) {
  if (path.empty()) return std::optional<SigningKey>();
  ATTNLOOM_TRY(const std::string pem, read_input(path));
  ATTNLOOM_TRY(SigningKey key, SigningKey::parse(pem, path));
  return std::optional<SigningKey>(std::move(key));
}

// An entry that earlier templates made is found by no key of this library.
bool of_these_templates(const Entry& entry) {
  constexpr std::string_view kHeader = "header:";
  for (const auto& [field, digest] : entry.fields) {
    if (!field.starts_with(kHeader)) continue;
    const EmbeddedFile* file = find_embedded(field.substr(kHeader.size()), embedded_files());
    if (file == nullptr || to_hex(sha256(file->text)) != digest) return false;
  }
  return true;
}

// What people may want to know of each kernel of these specs, by request_key.
using Remarks = std::map<std::string, Json>;

Status describe_spec(const Spec& spec, Remarks& remarks) {
  ATTNLOOM_CHECK(check_spec(spec));
  ATTNLOOM_TRY(const std::vector<KernelChoice> choices, kernel_set(spec));
  const Json about = {{"variant", spec.variant.name}, {"spec", spec_to_json(spec)}};
  for (KernelChoice choice : choices) {
    for (;;) {
      ATTNLOOM_TRY(const Source source, render(spec, choice));
      remarks[request_key(source)] = about;
      // Which one does not spill is not known here; what it may step down to has the same name.
      Result<KernelChoice> smaller = step_down(spec, choice);
      if (!smaller.ok()) break;
      choice = std::move(smaller).value();
    }
  }
  return ok_status();
}

Result<Remarks> describe_specs(const BundleOptions& options) {
  Remarks remarks;
  for (const std::string& path : options.describe) {
    ATTNLOOM_TRY(ParsedSpec parsed, load_spec(path));
    std::vector<std::string> targets = options.targets;
    if (targets.empty()) {
      if (!parsed.spec.target)
        return make_error(Code::kSpecInvalid, "$.target", path + " names no target",
                          "give --target, or a target in the spec");
      targets = {parsed.spec.target->name()};
    }
    for (const std::string& target : targets) {
      parsed.spec.target = parse_target(target);
      if (!parsed.spec.target)
        return make_error(Code::kArgumentInvalid, "--target",
                          "wanted sm_NN, sm_NNa or sm_NNf, given " + target);
      ATTNLOOM_CHECK(describe_spec(parsed.spec, remarks));
    }
  }
  return remarks;
}

struct Collected {
  std::vector<BundleInput> entries;
  std::map<std::string, int> targets;  // how many entries of each
  int other_templates = 0;             // left out
};

Status collect(const BundleOptions& options, const Settings& settings, const ReadOnlyPlace& place,
               const Remarks& remarks, const std::optional<SigningKey>& key, Collected& into) {
  const auto& wanted = options.targets;
  for (const Name& name : place.list()) {
    ATTNLOOM_TRY(CheckedEntry checked, check_entry(place, name));
    const std::string target = checked.entry.artifact.target;
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), target) == wanted.end())
      continue;
    if (!of_these_templates(checked.entry)) {
      ++into.other_templates;
      continue;
    }
    // Packing hides who could have written it, and a signature says that somebody looked.
    if (const Status vouched = vouch(checked.entry, checked.stored, settings.trusted.get(), true);
        !vouched.ok())
      return at_entry(vouched, place, name);
    BundleInput input;
    input.bytes = std::move(checked.stored.bytes);
    if (!options.ptx) {
      ATTNLOOM_TRY(input.bytes, without_ptx(input.bytes));
      checked.entry.artifact.ptx.clear();
    }
    if (!signers_of(checked.stored.signature).empty()) input.signature = checked.stored.signature;
    if (key) input.signature = add_signature(input.signature, key->sign(facts_of(checked.entry)));
    if (const auto about = remarks.find(name.first); about != remarks.end())
      input.about = about->second;
    into.entries.push_back(std::move(input));
    ++into.targets[target];
  }
  return ok_status();
}

Status nothing_found(const BundleOptions& options, const Collected& all) {
  for (const std::string& target : options.targets)
    if (all.targets.count(target) == 0)
      return make_error(Code::kNotCached, "--target", "there is no entry for " + target,
                        "compile its kernels first (attnloom compile)");
  if (!all.entries.empty()) return ok_status();
  const std::string others = std::to_string(all.other_templates);
  return make_error(Code::kNotCached, "",
                    "there is no entry to export (" + others + " of other templates were left out)",
                    "compile some first (attnloom compile)");
}

}  // namespace

Result<int> bundle_export(const BundleOptions& options) {
  const std::unique_ptr<FileSystem> files = make_real_file_system();
  ATTNLOOM_TRY(const Settings settings, bundle_settings(options, *files));
  ATTNLOOM_TRY(const std::optional<SigningKey> key, read_key(options.key));
  ATTNLOOM_TRY(const Remarks remarks, describe_specs(options));
  std::vector<std::string> from = options.from;
  if (from.empty()) from = {settings.cache_root.value};
  Collected all;
  for (const std::string& named : from) {
    ATTNLOOM_TRY(const ReadOnlyPlace place, open_place(*files, named));
    ATTNLOOM_CHECK(collect(options, settings, place, remarks, key, all));
  }
  ATTNLOOM_CHECK(nothing_found(options, all));
  ATTNLOOM_TRY(const std::string bytes,
               write_bundle(ATTNLOOM_VERSION, template_set_digest(), std::move(all.entries)));
  ATTNLOOM_CHECK(replace_file(options.output, bytes, kBundleMode));
  ATTNLOOM_TRY(const ReadOnlyPlace written, open_place(*files, options.output));
  const BundleIndex& index = written.bundle()->index();
  const Json report = {{"output", options.output},
                       {"entries", index.entries.size()},
                       {"other_templates", all.other_templates},
                       {"bytes", bytes.size()},
                       {"sha256", to_hex(sha256(bytes))},
                       {"targets", bundle_targets(index)},
                       {"templates", index.templates},
                       {"key_id", key ? Json(key->key_id()) : Json()}};
  if (options.json) {
    print_json(report);
    return kAgrees;
  }
  std::cout << options.output << ": " << index.entries.size() << " entries, " << bytes.size()
            << " bytes, sha256 " << report["sha256"].get<std::string>() << '\n';
  if (all.other_templates > 0)
    std::cout << all.other_templates << " entries of other templates were left out\n";
  return kAgrees;
}

Result<int> bundle_import(const BundleOptions& options) {
  const std::unique_ptr<FileSystem> files = make_real_file_system();
  ATTNLOOM_TRY(const Settings settings, bundle_settings(options, *files));
  OwnRoot root(*files, settings.cache_root.value,
               [](const std::string& line) { std::cerr << "attnloom: " << line << '\n'; });
  if (root.path().empty())
    return make_error(Code::kCacheIo, settings.cache_root.origin,
                      "there is no writable cache: " + root.refusal(), kRootRemedy);
  std::vector<CheckedEntry> entries;  // all of them are checked before the first is written
  for (const std::string& named : options.paths) {
    ATTNLOOM_TRY(const ReadOnlyPlace place, open_place(*files, named));
    for (const Name& name : place.list()) {
      ATTNLOOM_TRY(CheckedEntry checked, check_entry(place, name));
      if (const Status vouched =
              vouch(checked.entry, checked.stored, settings.trusted.get(), false);
          !vouched.ok())
        return at_entry(vouched, place, name);
      entries.push_back(std::move(checked));
    }
  }
  for (CheckedEntry& checked : entries)
    ATTNLOOM_CHECK(root.publish(checked.entry.request_key, checked.entry.artifact,
                                [&] { return std::move(checked.stored.bytes); }));
  const Json report = {
      {"cache", root.path()}, {"entries", entries.size()}, {"written", root.published()}};
  if (options.json)
    print_json(report);
  else
    std::cout << root.path() << ": " << entries.size() << " entries, " << root.published()
              << " of them new\n";
  return kAgrees;
}

namespace {

Status sign_directory(const ReadOnlyPlace& place, const TrustedKeys* keys, const SigningKey& key) {
  for (const Name& name : place.list()) {
    ATTNLOOM_TRY(const CheckedEntry checked, check_entry(place, name));
    if (const Status vouched = vouch(checked.entry, checked.stored, keys, true); !vouched.ok())
      return at_entry(vouched, place, name);
    const std::string path =
        layout::signature(layout::entry(layout::base(place.path()), name.first, name.second));
    const std::string text =
        add_signature(checked.stored.signature, key.sign(facts_of(checked.entry)));
    ATTNLOOM_CHECK(replace_file(path, text, kBundleMode));
  }
  return ok_status();
}

// The frames stay as they are: only the index is written anew.
Status sign_bundle(const ReadOnlyPlace& place, const TrustedKeys* keys, const SigningKey& key) {
  BundleIndex index = place.bundle()->index();
  for (BundleEntry& entry : index.entries) {
    const Name name(entry.request_key, entry.fingerprint);
    ATTNLOOM_TRY(const CheckedEntry checked, check_entry(place, name));
    if (const Status vouched = vouch(checked.entry, checked.stored, keys, true); !vouched.ok())
      return at_entry(vouched, place, name);
    entry.signature = add_signature(entry.signature, key.sign(facts_of(checked.entry)));
  }
  ATTNLOOM_TRY(const std::string frames, place.bundle()->frames());
  return replace_file(place.path(), with_bundle_index(index, frames), kBundleMode);
}

}  // namespace

Result<int> bundle_sign(const BundleOptions& options) {
  const std::unique_ptr<FileSystem> files = make_real_file_system();
  ATTNLOOM_TRY(const Settings settings, bundle_settings(options, *files));
  ATTNLOOM_TRY(const std::optional<SigningKey> key, read_key(options.key));
  for (const std::string& named : options.paths) {  // before anything is signed
    ATTNLOOM_TRY(const ReadOnlyPlace place, open_place(*files, named));
    if (place.list().empty()) return no_entries(named);
  }
  Json signed_places = Json::array();
  for (const std::string& named : options.paths) {
    ATTNLOOM_TRY(const ReadOnlyPlace place, open_place(*files, named));
    const auto sign = place.bundle() != nullptr ? sign_bundle : sign_directory;
    ATTNLOOM_CHECK(sign(place, settings.trusted.get(), *key));
    signed_places.push_back({{"path", place.path()}, {"entries", place.list().size()}});
  }
  if (options.json) {
    print_json({{"key_id", key->key_id()}, {"signed", signed_places}});
    return kAgrees;
  }
  for (const Json& place : signed_places)
    std::cout << place["path"].get<std::string>() << ": " << place["entries"]
              << " entries signed by " << key->key_id() << '\n';
  return kAgrees;
}

}  // namespace attnloom::cli
