// SPDX-License-Identifier: Apache-2.0
// attnloom bundle verify, diff and ls: what only looks.
#include <algorithm>
#include <iostream>
#include <map>
#include <set>

#include "base/joined.h"
#include "base/sha256.h"
#include "cache/layout.h"
#include "render/render.h"
#include "tools/cli/bundle_command.h"
#include "tools/cli/output.h"

namespace attnloom::cli {
namespace {

using Name = std::pair<std::string, std::string>;

std::string_view kind_of(const ReadOnlyPlace& place) {
  return place.layer() == Layer::kBundle ? "bundle" : "directory";
}

// Whether this library can ask for what a bundle holds.
bool usable(const ReadOnlyPlace& place) {
  return place.bundle() == nullptr || place.bundle()->index().templates == template_set_digest();
}

Json problem_json(const Status& error) {
  return {{"code", code_name(error.code)}, {"path", error.path}, {"cause", error.cause}};
}

// What the index says of an entry beside what its reader has compared already.
Status check_listing(const ReadOnlyPlace& place, const CheckedEntry& checked) {
  if (place.bundle() == nullptr) return ok_status();
  const Artifact& artifact = checked.entry.artifact;
  const BundleEntry& listed =
      *place.bundle()->find(checked.entry.request_key, artifact.fingerprint.hex);
  const std::string ptx = artifact.ptx.empty() ? "" : to_hex(sha256(artifact.ptx));
  if (listed.target == artifact.target && listed.cubin_sha256 == to_hex(sha256(artifact.cubin)) &&
      listed.ptx_sha256 == ptx)
    return ok_status();
  return make_error(Code::kCacheCorrupt, "", "the index says something else of it");
}

Status check_one(const ReadOnlyPlace& place, const Name& name, const TrustedKeys* keys,
                 const std::set<std::string>& compilers, std::set<std::string>& targets) {
  ATTNLOOM_TRY(const CheckedEntry checked, check_entry(place, name));
  Status status = check_listing(place, checked);
  if (status.ok() && compilers.count(name.second) == 0)
    status = make_error(Code::kCacheCorrupt, "", "TOOLCHAINS does not list its compiler");
  if (status.ok()) status = vouch(checked.entry, checked.stored, keys, false);
  if (!status.ok()) return at_entry(status, place, name);
  targets.insert(checked.entry.artifact.target);
  return ok_status();
}

Json verify_place(FileSystem& files, const std::string& named, const BundleOptions& options,
                  const TrustedKeys* keys) {
  Json report = {{"path", named}, {"entries", 0}, {"targets", Json::array()}};
  Json problems = Json::array();
  const ReadOnlyPlace place(files, named);
  if (!place.trouble().ok()) {
    Status error = place.trouble();
    error.path = named;
    problems.push_back(problem_json(error));
  }
  std::set<std::string> compilers, targets;
  for (const Fingerprint& compiler : place.toolchains()) compilers.insert(compiler.hex);
  const std::vector<Name> names = place.list();
  // Most likely another place was meant: nothing that was checked is not all that is good.
  if (place.trouble().ok() && names.empty()) problems.push_back(problem_json(no_entries(named)));
  for (const Name& name : names)
    if (const Status status = check_one(place, name, keys, compilers, targets); !status.ok())
      problems.push_back(problem_json(status));
  if (place.bundle() != nullptr)
    if (Status status = place.bundle()->check_archive(); !status.ok()) {
      status.path = place.path();
      problems.push_back(problem_json(status));
    }
  for (const std::string& target : options.targets)
    if (targets.count(target) == 0)
      problems.push_back(problem_json(
          make_error(Code::kNotCached, place.path(), "there is no good entry for " + target)));
  report["kind"] = kind_of(place);
  report["usable"] = usable(place);
  report["entries"] = names.size();
  report["targets"] = targets;
  report["problems"] = std::move(problems);
  return report;
}

std::string list_text(const Json& texts) {
  return texts.empty() ? "none" : joined(texts.get<std::vector<std::string>>());
}

// Name -> digest of the .alk file.
Result<std::map<std::string, std::string>> digests_of(const ReadOnlyPlace& place) {
  std::map<std::string, std::string> digests;
  for (const Name& name : place.list()) {
    Result<StoredEntry> stored = place.read(name.first, name.second);
    if (!stored.ok()) return at_entry(stored.status(), place, name);
    digests[layout::entry_name(name.first, name.second)] = to_hex(sha256(stored->bytes));
  }
  return digests;
}

Json row_json(const ReadOnlyPlace& place, const Name& name, const CheckedEntry& checked) {
  const Artifact& artifact = checked.entry.artifact;
  const BundleEntry* listed =
      place.bundle() == nullptr ? nullptr : place.bundle()->find(name.first, name.second);
  return {{"request_key", name.first},
          {"fingerprint", name.second},
          {"nvrtc", std::to_string(artifact.fingerprint.cuda_major) + "." +
                        std::to_string(artifact.fingerprint.cuda_minor)},
          {"target", artifact.target},
          {"bytes", checked.stored.bytes.size()},
          {"packed_bytes", listed == nullptr ? Json() : Json(listed->frame_bytes)},
          {"ptx", checked.entry.has_ptx},
          {"sha256", to_hex(sha256(checked.stored.bytes))},
          {"signers", signers_of(checked.stored.signature)},
          {"about", listed == nullptr ? Json() : listed->about}};
}

void print_row(const Json& row) {
  std::cout << row["request_key"].get<std::string>().substr(0, 12) << "  "
            << row["target"].get<std::string>() << "  NVRTC " << row["nvrtc"].get<std::string>()
            << "  " << row["bytes"] << " bytes" << (row["ptx"] ? " with PTX" : "");
  if (!row["signers"].empty()) std::cout << "  signed by " << list_text(row["signers"]);
  if (row["about"].is_object() && row["about"].value("variant", Json()).is_string())
    std::cout << "  " << row["about"]["variant"].get<std::string>();
  std::cout << '\n';
}

}  // namespace

Result<int> bundle_verify(const BundleOptions& options) {
  const std::unique_ptr<FileSystem> files = make_real_file_system();
  ATTNLOOM_TRY(const Settings settings, bundle_settings(options, *files));
  Json places = Json::array();
  bool good = true;
  for (const std::string& named : options.paths) {
    if (const auto opened = open_place(*files, named);
        !opened.ok() && opened.status().code == Code::kArgumentInvalid)
      return opened.status();
    places.push_back(verify_place(*files, named, options, settings.trusted.get()));
    good = good && places.back()["problems"].empty();
  }
  if (options.json) {
    print_json({{"ok", good}, {"places", places}});
    return good ? kAgrees : kDiffers;
  }
  for (const Json& place : places) {
    for (const Json& problem : place["problems"])
      std::cout << problem["path"].get<std::string>() << ": " << problem["code"].get<std::string>()
                << ": " << problem["cause"].get<std::string>() << '\n';
    std::cout << place["path"].get<std::string>() << ": " << place["entries"] << " entries, "
              << place["problems"].size() << " problems; targets: " << list_text(place["targets"])
              << (place["usable"] ? "\n"
                                  : "; made for templates that this library does not have\n");
  }
  return good ? kAgrees : kDiffers;
}

Result<int> bundle_diff(const BundleOptions& options) {
  const std::unique_ptr<FileSystem> files = make_real_file_system();
  std::vector<std::map<std::string, std::string>> sides;
  for (const std::string& named : options.paths) {
    ATTNLOOM_TRY(const ReadOnlyPlace place, open_place(*files, named));
    ATTNLOOM_TRY(auto digests, digests_of(place));
    sides.push_back(std::move(digests));
  }
  Json first = Json::array(), second = Json::array(), differ = Json::array();
  for (const auto& [name, digest] : sides[0]) {
    const auto other = sides[1].find(name);
    if (other == sides[1].end())
      first.push_back(name);
    else if (other->second != digest)
      differ.push_back(name);
  }
  for (const auto& [name, digest] : sides[1])
    if (sides[0].count(name) == 0) second.push_back(name);
  const bool same = first.empty() && second.empty() && differ.empty();
  if (options.json) {
    print_json(
        {{"same", same}, {"only_first", first}, {"only_second", second}, {"differ", differ}});
    return same ? kAgrees : kDiffers;
  }
  const auto print = [](const std::string& what, const Json& names) {
    for (const Json& name : names) std::cout << what << ": " << name.get<std::string>() << '\n';
  };
  print("only in " + options.paths[0], first);
  print("only in " + options.paths[1], second);
  print("differs", differ);
  std::cout << (same ? "they hold the same " : "they have in common ")
            << sides[0].size() - first.size() - differ.size() << " entries\n";
  return same ? kAgrees : kDiffers;
}

Result<int> bundle_ls(const BundleOptions& options) {
  const std::unique_ptr<FileSystem> files = make_real_file_system();
  ATTNLOOM_TRY(const ReadOnlyPlace place, open_place(*files, options.paths[0]));
  Json rows = Json::array();
  std::set<std::string> targets;
  for (const Name& name : place.list()) {
    ATTNLOOM_TRY(const CheckedEntry checked, check_entry(place, name));
    rows.push_back(row_json(place, name, checked));
    targets.insert(checked.entry.artifact.target);
  }
  Json report = {{"path", place.path()}, {"kind", kind_of(place)}, {"targets", targets},
                 {"templates", nullptr}, {"library", nullptr},     {"entries", rows}};
  if (place.bundle() != nullptr) {
    report["templates"] = place.bundle()->index().templates;
    report["library"] = place.bundle()->index().library;
  }
  report["usable"] = usable(place);
  if (options.json) {
    print_json(report);
    return kAgrees;
  }
  for (const Json& row : rows) print_row(row);
  std::cout << place.path() << ": " << rows.size()
            << " entries; targets: " << list_text(report["targets"]) << '\n';
  if (!report["usable"])
    std::cout << "It is a bundle for templates " << report["templates"].get<std::string>()
              << "; this library has " << template_set_digest() << '\n';
  return kAgrees;
}

}  // namespace attnloom::cli
