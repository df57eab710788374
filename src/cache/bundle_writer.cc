// SPDX-License-Identifier: Apache-2.0
#include "cache/bundle_writer.h"

#include <map>
#include <new>
#include <utility>

#include "base/sha256.h"
#include "cache/entry.h"
#include "cache/tar_member.h"
#include "cache/toolchain_list.h"
#include "cache/zstd_frame.h"

namespace attnloom {
namespace {

// 16 KB for a cubin of 45 KB, and 15 ms; level 22 gains 1 % more and takes as long again.
constexpr int kLevel = 19;

std::string frame_of(const std::string& bytes) {
  std::string frame = compress_frame(bytes, kLevel, FrameChecksum::kContent);
  if (frame.empty()) throw std::bad_alloc();
  return frame;
}

BundleEntry describe(const Entry& decoded, BundleInput& input) {
  const Artifact& artifact = decoded.artifact;
  BundleEntry entry;
  entry.request_key = decoded.request_key;
  entry.fingerprint = artifact.fingerprint.hex;
  entry.target = artifact.target;
  entry.bytes = input.bytes.size();
  entry.sha256 = to_hex(sha256(input.bytes));
  entry.cubin_sha256 = to_hex(sha256(artifact.cubin));
  if (decoded.has_ptx) entry.ptx_sha256 = to_hex(sha256(artifact.ptx));
  entry.signature = std::move(input.signature);
  entry.about = std::move(input.about);
  return entry;
}

}  // namespace

Result<std::string> write_bundle(const std::string& library, const std::string& templates,
                                 std::vector<BundleInput> inputs) {
  struct Item {
    BundleEntry entry;
    std::string bytes;
  };
  std::map<std::pair<std::string, std::string>, Item> items;  // sorted by name
  std::map<std::string, Fingerprint> compilers;
  for (BundleInput& input : inputs) {
    ATTNLOOM_TRY(const Entry decoded, decode_entry(input.bytes, Unpack::kAll));
    BundleEntry entry = describe(decoded, input);
    compilers.emplace(entry.fingerprint, decoded.artifact.fingerprint);
    const std::pair name(entry.request_key, entry.fingerprint);
    items.emplace(name, Item{std::move(entry), std::move(input.bytes)});
  }
  BundleIndex index;
  index.library = library;
  index.templates = templates;
  for (const auto& [hex, compiler] : compilers) add_toolchain(index.toolchains, compiler);
  std::string frames =
      frame_of(tar_member(kBundleToolchainsName, print_toolchains(index.toolchains)));
  for (auto& [name, item] : items) {
    const std::string frame = frame_of(tar_member(bundle_member_name(item.entry), item.bytes));
    item.entry.offset = frames.size();
    item.entry.frame_bytes = frame.size();
    frames += frame;
    index.entries.push_back(std::move(item.entry));
  }
  frames += frame_of(tar_end());
  return with_bundle_index(index, frames);
}

std::string with_bundle_index(const BundleIndex& index, std::string_view frames) {
  std::string bundle = frame_of(tar_member(kBundleIndexName, print_bundle_index(index)));
  return bundle += frames;
}

}  // namespace attnloom
