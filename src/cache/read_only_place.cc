// SPDX-License-Identifier: Apache-2.0
#include "cache/read_only_place.h"

#include <utility>

#include "cache/layout.h"
#include "cache/root_check.h"
#include "cache/toolchain_list.h"

namespace attnloom {

ReadOnlyPlace::ReadOnlyPlace(FileSystem& files, std::string path)
    : files_(&files), path_(std::move(path)), distrust_(refuse_place(files, path_)) {}

std::vector<Fingerprint> ReadOnlyPlace::toolchains() const {
  const Result<std::string> text = files_->read(layout::toolchains(layout::base(path_)));
  return text.ok() ? parse_toolchains(*text) : std::vector<Fingerprint>();
}

Result<StoredEntry> ReadOnlyPlace::read(const std::string& request_key,
                                        const std::string& fingerprint) const {
  const std::string path = layout::entry(layout::base(path_), request_key, fingerprint);
  StoredEntry entry;
  ATTNLOOM_TRY(entry.bytes, files_->read(path));
  if (const Result<std::string> text = files_->read(layout::signature(path)); text.ok())
    entry.signature = *text;
  entry.distrust = distrust_.empty() ? refuse_file(files_->info(path)) : distrust_;
  return entry;
}

}  // namespace attnloom
