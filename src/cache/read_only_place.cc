// SPDX-License-Identifier: Apache-2.0
#include "cache/read_only_place.h"

#include <utility>

#include "cache/layout.h"
#include "cache/own_files.h"
#include "cache/toolchain_list.h"

namespace attnloom {

ReadOnlyPlace::ReadOnlyPlace(FileSystem& files, std::string path)
    : files_(&files), path_(std::move(path)) {}

std::vector<Fingerprint> ReadOnlyPlace::toolchains() const {
  const Result<std::string> text = files_->read(layout::toolchains(layout::base(path_)));
  return text.ok() ? parse_toolchains(*text) : std::vector<Fingerprint>();
}

Result<std::string> ReadOnlyPlace::read(const std::string& request_key,
                                        const std::string& fingerprint) const {
  return files_->read(layout::entry(layout::base(path_), request_key, fingerprint));
}

std::vector<std::pair<std::string, std::string>> ReadOnlyPlace::list() const {
  std::vector<std::pair<std::string, std::string>> names;
  for (const OwnFile& file : list_entries(*files_, layout::base(path_)))
    names.emplace_back(file.request_key, file.fingerprint);
  return names;
}

}  // namespace attnloom
