// SPDX-License-Identifier: Apache-2.0
#include "cache/own_files.h"

#include "cache/entry.h"
#include "cache/layout.h"

namespace attnloom {
namespace {

constexpr std::size_t kKeyDigits = 64;
constexpr std::size_t kFingerprintDigits = 16;

// "<key>.<fingerprint>" + `suffix`, as only we make them.
bool parse_name(const std::string& name, const std::string& suffix, OwnFile& file) {
  const std::size_t stem = kKeyDigits + 1 + kFingerprintDigits;
  if (name.size() != stem + suffix.size() || name[kKeyDigits] != '.' || !name.ends_with(suffix))
    return false;
  file.request_key = name.substr(0, kKeyDigits);
  file.fingerprint = name.substr(kKeyDigits + 1, kFingerprintDigits);
  return is_key(file.request_key) && is_fingerprint(file.fingerprint);
}

std::vector<OwnFile> list_keyed(FileSystem& files, const std::string& folder,
                                const std::string& suffix) {
  std::vector<OwnFile> found;
  const auto groups = files.list(folder);
  if (!groups.ok()) return found;
  for (const std::string& group : *groups) {
    const auto names = files.list(folder + "/" + group);
    if (!names.ok()) continue;
    for (const std::string& name : *names) {
      OwnFile file;
      if (!parse_name(name, suffix, file)) continue;
      file.path = folder + "/" + group + "/" + name;
      const FileInfo info = files.info(file.path);
      if (!info.is_regular) continue;
      file.bytes = info.bytes;
      file.mtime_ns = info.mtime_ns;
      found.push_back(std::move(file));
    }
  }
  return found;
}

}  // namespace

std::vector<OwnFile> list_entries(FileSystem& files, const std::string& base) {
  return list_keyed(files, layout::entries(base), ".alk");
}

std::vector<OwnFile> list_failures(FileSystem& files, const std::string& base) {
  return list_keyed(files, layout::failures(base), "");
}

Status remove_entry(FileSystem& files, const std::string& path) {
  ATTNLOOM_CHECK(files.remove(path));
  (void)files.remove(layout::signature(path));
  return ok_status();
}

std::uint64_t bytes_of(const std::vector<OwnFile>& files) {
  std::uint64_t bytes = 0;
  for (const OwnFile& file : files) bytes += file.bytes;
  return bytes;
}

}  // namespace attnloom
