// SPDX-License-Identifier: Apache-2.0
#include "cache/bundle_file.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <tuple>

#include "base/sha256.h"
#include "cache/tar_member.h"
#include "cache/toolchain_list.h"
#include "cache/zstd_frame.h"

namespace attnloom {
namespace {

constexpr std::uint64_t kFrameHeaderBytes = 18;  // the longest that zstd has
constexpr std::uint64_t kAll = std::numeric_limits<std::uint64_t>::max();
// 64 MB are an index of a hundred thousand entries; an entry is a kernel of tens of KB.
constexpr std::uint64_t kMostIndexBytes = 64 << 20;
constexpr std::uint64_t kMostEntryBytes = 256 << 20;
constexpr std::uint64_t kMostFileBytes = std::uint64_t{1} << 60;  // no sum below runs over

Status corrupt(const std::string& cause) {
  return make_error(Code::kCacheCorrupt, "", cause);
}

struct IndexFrame {
  std::uint64_t frame_bytes = 0;
  BundleIndex index;
};

// From the beginning of a bundle.
Result<IndexFrame> parse_index_frame(std::string_view bytes, std::uint64_t content_bytes) {
  IndexFrame read;
  read.frame_bytes = frame_bytes(bytes);
  if (read.frame_bytes == 0) return corrupt("the index is cut or damaged");
  const std::optional<std::string> member =
      decompress_frame(bytes.substr(0, read.frame_bytes), content_bytes);
  if (!member) return corrupt("the index cannot be unpacked");
  // The index does not know its own length; what fits the header is the length.
  constexpr std::string_view kBlanks("\0", 1);
  std::string_view content(*member);
  const std::uint64_t header_bytes = tar_member_bytes(0);
  content.remove_prefix(std::min<std::size_t>(header_bytes, content.size()));
  content = content.substr(0, content.find_last_not_of(kBlanks) + 1);
  const auto text = tar_content(*member, kBundleIndexName, content.size());
  if (!text) return corrupt("its first member is not " + std::string(kBundleIndexName));
  ATTNLOOM_TRY(read.index, parse_bundle_index(*text));
  return read;
}

Result<std::uint64_t> index_content_bytes(std::string_view prefix) {
  const std::optional<std::uint64_t> bytes = frame_content_bytes(prefix);
  if (!bytes) return corrupt("it does not begin with a zstd frame of known size");
  if (*bytes > kMostIndexBytes)
    return corrupt("the index claims " + std::to_string(*bytes) + " bytes");
  return *bytes;
}

}  // namespace

Result<BundleFile> BundleFile::open(FileSystem& files, const std::string& path,
                                    const std::string& pinned_sha256) {
  BundleFile bundle(files, path);
  std::string bytes;
  std::uint64_t content_bytes = 0;
  if (pinned_sha256.empty()) {
    ATTNLOOM_TRY(const std::string prefix, files.read_range(path, 0, kFrameHeaderBytes));
    ATTNLOOM_TRY(content_bytes, index_content_bytes(prefix));
    ATTNLOOM_TRY(bytes, files.read_range(path, 0, most_frame_bytes(content_bytes)));
  } else {
    // The index must come from the very bytes that were hashed: between two reads the file may be
    // another one.
    ATTNLOOM_TRY(bytes, files.read_range(path, 0, kAll));
    if (const std::string digest = to_hex(sha256(bytes)); digest != pinned_sha256)
      return make_error(Code::kUntrusted, "", "its SHA-256 is " + digest + ", not the pinned one");
    ATTNLOOM_TRY(content_bytes, index_content_bytes(bytes));
  }
  ATTNLOOM_TRY(IndexFrame read, parse_index_frame(bytes, content_bytes));
  bundle.begin_ = read.frame_bytes;
  bundle.index_ = std::move(read.index);
  return bundle;
}

const BundleEntry* BundleFile::find(const std::string& request_key,
                                    const std::string& fingerprint) const {
  const auto wanted = std::tie(request_key, fingerprint);
  const auto found =
      std::lower_bound(index_.entries.begin(), index_.entries.end(), wanted,
                       [](const BundleEntry& entry, const auto& name) {
                         return std::tie(entry.request_key, entry.fingerprint) < name;
                       });
  if (found == index_.entries.end() || std::tie(found->request_key, found->fingerprint) != wanted)
    return nullptr;
  return &*found;
}

Result<std::string> BundleFile::read(const BundleEntry& entry) const {
  if (entry.bytes > kMostEntryBytes || entry.frame_bytes > most_frame_bytes(kMostEntryBytes))
    return corrupt("the index claims an entry of " + std::to_string(entry.bytes) + " bytes");
  if (entry.offset > kMostFileBytes) return corrupt("the file is cut");
  ATTNLOOM_TRY(const std::string frame,
               files_->read_range(path_, begin_ + entry.offset, entry.frame_bytes));
  if (frame.size() != entry.frame_bytes) return corrupt("the file is cut");
  const std::optional<std::string> member = decompress_frame(frame, tar_member_bytes(entry.bytes));
  if (!member) return corrupt("its frame is damaged");
  const auto content = tar_content(*member, bundle_member_name(entry), entry.bytes);
  if (!content) return corrupt("its frame holds another member than the index says");
  if (to_hex(sha256(*content)) != entry.sha256)
    return corrupt("the SHA-256 differs from the index");
  return std::string(*content);
}

Status BundleFile::check_archive() const {
  ATTNLOOM_TRY(const std::string rest, frames());
  std::uint64_t next = 0;
  const auto take = [&](std::uint64_t content_bytes) -> std::optional<std::string> {
    const std::string_view from = std::string_view(rest).substr(next);
    const std::uint64_t bytes = frame_bytes(from);
    next += bytes;
    return decompress_frame(from.substr(0, bytes), content_bytes);
  };
  const std::string toolchains = print_toolchains(index_.toolchains);
  const auto first = take(tar_member_bytes(toolchains.size()));
  if (!first || *first != tar_member(kBundleToolchainsName, toolchains))
    return corrupt("its TOOLCHAINS differ from the index");
  for (const BundleEntry& entry : index_.entries) {
    if (entry.offset != next) return corrupt("the entries do not lie one behind the other");
    next += std::min(entry.frame_bytes, rest.size() - next);
  }
  const auto last = take(tar_end().size());
  if (!last || *last != tar_end() || next != rest.size())
    return corrupt("it does not end as an archive does");
  return ok_status();
}

Result<std::string> BundleFile::frames() const {
  return files_->read_range(path_, begin_, kAll);
}

}  // namespace attnloom
