// SPDX-License-Identifier: Apache-2.0
#include "cache/read_only_place.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "cache/layout.h"
#include "cache/pinned_path.h"
#include "cache/root_check.h"
#include "cache/toolchain_list.h"

namespace attnloom {
namespace {

constexpr std::size_t kKeyDigits = 64;
constexpr std::size_t kFingerprintDigits = 16;

// A named file may be a link, and files are read without following any.
std::string behind_links(FileSystem& files, const std::string& path) {
  if (!files.info(path).is_symlink) return path;
  std::error_code error;
  const std::string target = std::filesystem::canonical(path, error).string();
  return error ? path : target;
}

}  // namespace

ReadOnlyPlace::ReadOnlyPlace(FileSystem& files, const std::string& named) : files_(&files) {
  const Result<PinnedPath> pinned = parse_pinned_path(named);
  path_ = pinned.ok() ? pinned->path : named;
  trouble_ = pinned.status();
  if (!trouble_.ok()) return;
  distrust_ = refuse_place(files, path_);
  if (files.info(behind_links(files, path_)).is_regular) {
    open_bundle(pinned->sha256);
  } else if (!pinned->sha256.empty()) {
    trouble_ = make_error(Code::kArgumentInvalid, "", "a digest pins one file; this is none",
                          "name a bundle");
  }
}

void ReadOnlyPlace::open_bundle(const std::string& sha256) {
  layer_ = Layer::kBundle;
  Result<BundleFile> opened = BundleFile::open(*files_, behind_links(*files_, path_), sha256);
  trouble_ = opened.status();
  if (!opened.ok()) return;
  bundle_ = std::make_shared<const BundleFile>(std::move(opened).value());
  if (!sha256.empty()) distrust_.clear();  // whoever can write there, these are the bytes named
}

std::vector<Fingerprint> ReadOnlyPlace::toolchains() const {
  if (layer_ == Layer::kBundle)
    return bundle_ ? bundle_->index().toolchains : std::vector<Fingerprint>();
  const Result<std::string> text = files_->read(layout::toolchains(layout::base(path_)));
  return text.ok() ? parse_toolchains(*text) : std::vector<Fingerprint>();
}

Result<StoredEntry> ReadOnlyPlace::read(const std::string& request_key,
                                        const std::string& fingerprint) const {
  StoredEntry entry;
  entry.distrust = distrust_;
  if (layer_ == Layer::kBundle) {
    const BundleEntry* listed = bundle_ ? bundle_->find(request_key, fingerprint) : nullptr;
    if (listed == nullptr) return make_error(Code::kNotCached, path_, "no such entry");
    ATTNLOOM_TRY(entry.bytes, bundle_->read(*listed));
    entry.signature = listed->signature;
    return entry;
  }
  const std::string path = layout::entry(layout::base(path_), request_key, fingerprint);
  ATTNLOOM_TRY(entry.bytes, files_->read(path));
  if (const Result<std::string> text = files_->read(layout::signature(path)); text.ok())
    entry.signature = *text;
  if (entry.distrust.empty()) entry.distrust = refuse_file(files_->info(path));
  return entry;
}

std::vector<std::pair<std::string, std::string>> ReadOnlyPlace::list() const {
  std::vector<std::pair<std::string, std::string>> names;
  if (bundle_) {
    for (const BundleEntry& entry : bundle_->index().entries)
      names.emplace_back(entry.request_key, entry.fingerprint);
    return names;
  }
  const std::string folder = layout::base(path_) + "/k";
  const auto shelves = files_->list(folder);
  if (!shelves.ok()) return names;
  for (const std::string& shelf : *shelves) {
    const auto files = files_->list(folder + "/" + shelf);
    if (!files.ok()) continue;
    for (const std::string& file : *files) {
      const std::string key = file.substr(0, kKeyDigits);
      const std::string fingerprint =
          file.size() <= kKeyDigits ? "" : file.substr(kKeyDigits + 1, kFingerprintDigits);
      if (is_key(key) && is_fingerprint(fingerprint) &&
          file == layout::entry_name(key, fingerprint))
        names.emplace_back(key, fingerprint);
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

Status vouch(const Entry& entry, const StoredEntry& stored, const TrustedKeys* keys,
             bool place_suffices) {
  if (stored.distrust.empty() && (keys == nullptr || place_suffices)) return ok_status();
  if (keys != nullptr) return keys->verify(facts_of(entry), stored.signature);
  return make_error(Code::kUntrusted, "", stored.distrust, kTrustRemedy);
}

}  // namespace attnloom
