// SPDX-License-Identifier: Apache-2.0
// The reader of bundles. First byte: 0 a file as it is, 1 the text of an index over the frames of a
// good bundle, 2 the first member before it is packed.
#include "base/files.h"
#include "base/sha256.h"
#include "cache/bundle_file.h"
#include "cache/bundle_writer.h"
#include "cache/tar_member.h"
#include "cache/zstd_frame.h"
#include "fuzz/fuzz.h"
#include "fuzz/seed_entries.h"

using namespace attnloom;

namespace {

constexpr const char* kPath = "/fuzz.alb";

// Behind the index of the seed bundle.
const std::string& good_frames() {
  static const std::string frames = [] {
    const std::string bundle = fuzz::seed_bundle();
    return bundle.substr(frame_bytes(bundle));
  }();
  return frames;
}

std::string pack(std::string_view member) {
  return compress_frame(member, 1, FrameChecksum::kNone) + good_frames();
}

std::string dress(int how, std::string_view rest) {
  if (how == 0) return std::string(rest);
  return pack(how == 1 ? tar_member(kBundleIndexName, rest) : std::string(rest));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto [how, rest] = fuzz::undress(data, size, 3);
  const auto files = make_memory_file_system();
  const Status written = files->publish("/", kPath, dress(how, rest), Publish::kReplace);
  fuzz::require(written.ok(), "the file system in memory takes everything");
  const auto bundle = BundleFile::open(*files, kPath, "");
  if (!bundle.ok()) {
    fuzz::require(bundle.status().code == Code::kCacheCorrupt, "a refusal is CACHE_CORRUPT");
    return 0;
  }
  for (const BundleEntry& entry : bundle->index().entries) {
    fuzz::require(bundle->find(entry.request_key, entry.fingerprint) == &entry,
                  "every entry is found by its name");
    const auto bytes = bundle->read(entry);
    if (bytes.ok())
      fuzz::require(to_hex(sha256(*bytes)) == entry.sha256 && bytes->size() == entry.bytes,
                    "what is read is what the index promises");
  }
  (void)bundle->check_archive();
  (void)bundle_targets(bundle->index());
  const auto again = parse_bundle_index(print_bundle_index(bundle->index()));
  fuzz::require(again.ok() && again->entries.size() == bundle->index().entries.size(),
                "an index that was read can be written and read");
  return 0;
}
