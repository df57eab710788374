// SPDX-License-Identifier: Apache-2.0
#include "cache/own_root.h"

#include <chrono>
#include <utility>

#include "cache/layout.h"
#include "cache/root_check.h"
#include "cache/toolchain_list.h"
#include "compile/cubin_note.h"

namespace attnloom {
namespace {

constexpr std::uint64_t kMostEntryBytes = 256 << 20;  // an entry is a kernel of tens of KB

constexpr std::string_view kTagName = "/CACHEDIR.TAG";
// The signature is that of the cache directory tagging convention: backup programs skip such a
// directory.
constexpr std::string_view kTag =
    "Signature: 8a477f597d28d172789f06886806bc55\n# Attnloom's kernel cache: may be deleted at any "
    "time.\n";
constexpr int kListAttempts = 8;
constexpr int kQuarantineNames = 8;

std::string file_name(const std::string& path) {
  return path.substr(path.find_last_of('/') + 1);
}

}  // namespace

OwnRoot::OwnRoot(FileSystem& files, const std::string& root, Warn warn, CareOptions care)
    : files_(files), warn_(std::move(warn)) {
  if (root.empty()) return;
  const std::string path = normal_path(root);
  refusal_ = refuse_root(files, path);
  if (refusal_.empty()) {
    root_ = path;
    care_ = std::make_unique<RootCare>(files, base(), std::move(care), warn_);
  } else {
    warn_("cache directory " + path + " is not used: " + refusal_ + "; kernels stay in memory; " +
          kRootRemedy);
  }
}

std::string OwnRoot::base() const {
  return layout::base(root_);
}

std::vector<Fingerprint> OwnRoot::toolchains() const {
  if (root_.empty()) return {};
  const auto text = files_.read(layout::toolchains(base()));
  return text.ok() ? parse_toolchains(*text) : std::vector<Fingerprint>();
}

// Out of the way and kept for whoever wants to know, under the same name, so a fault that repeats
// takes no more room.
void OwnRoot::quarantine(const std::string& path, const std::string& reason) {
  ++quarantined_;
  const std::string name = layout::quarantine(base()) + "/" + file_name(path);
  std::string to = name;
  bool moved =
      files_.make_directories(layout::quarantine(base())).ok() && files_.rename(path, to).ok();
  // A directory cannot take the name of one that is there already.
  for (int i = 1; !moved && i < kQuarantineNames; ++i) {
    to = name + "." + std::to_string(i);
    moved = files_.rename(path, to).ok();
  }
  if (moved) {
    const std::string signature = layout::signature(path);
    if (files_.info(signature).exists) (void)files_.rename(signature, layout::signature(to));
    (void)files_.touch(to, care_->now_ns());  // the oldest go first, counted from here
    care_->trim_quarantine();
  }
  warn_("cache entry " + path + " is damaged (" + reason + ") and " +
        (moved ? "was moved to quarantine" : "cannot be moved away") +
        "; the kernel is compiled again");
}

void OwnRoot::reject(const std::string& request_key, const std::string& fingerprint,
                     const std::string& reason) {
  if (root_.empty()) return;
  const std::string path = layout::entry(base(), request_key, fingerprint);
  if (files_.info(path).exists) quarantine(path, reason);
}

std::string refuse_entry(const Result<Entry>& entry, const std::string& request_key,
                         const std::string& fingerprint) {
  if (!entry.ok()) return entry.status().cause;
  if (entry->request_key != request_key) return "it is the entry of another key";
  if (entry->artifact.fingerprint.hex != fingerprint) return "it is the entry of another compiler";
  const std::string target = read_cubin_note(entry->artifact.cubin).target;
  if (!target.empty() && target != entry->artifact.target)
    return "its cubin was made for " + target + ", its metadata says " + entry->artifact.target;
  return {};
}

std::optional<Entry> OwnRoot::read(const std::string& request_key, const std::string& fingerprint,
                                   Unpack unpack) {
  const std::string path = layout::entry(base(), request_key, fingerprint);
  const FileInfo info = files_.info(path);
  if (!info.exists) return std::nullopt;
  if (const std::string reason = refuse_file(info); !reason.empty()) {
    warn_("cache entry " + path + " is not used: " + reason);
    return std::nullopt;
  }
  if (!info.is_regular) {
    quarantine(path, "not a file");
    return std::nullopt;
  }
  if (info.bytes > kMostEntryBytes) {
    quarantine(path, "longer than any entry");
    return std::nullopt;
  }
  const auto bytes = files_.read(path);
  if (!bytes.ok())
    return std::nullopt;  // gone, stale or unreadable just now: a miss, not a damaged entry
  auto entry = decode_entry(*bytes, unpack);
  if (const std::string reason = refuse_entry(entry, request_key, fingerprint); !reason.empty()) {
    quarantine(path, reason);
    return std::nullopt;
  }
  care_->used(path, info.mtime_ns);
  return std::move(entry).value();
}

Status OwnRoot::prepare() {
  if (prepared_) return ok_status();
  ATTNLOOM_CHECK(files_.make_directories(layout::temps(base())));
  // Between the check at construction and now the directory may have been made by somebody else.
  if (const std::string reason = refuse_root(files_, base()); !reason.empty()) {
    return make_error(Code::kCacheIo, root_, "the directory must not be used: " + reason,
                      kRootRemedy);
  }
  ATTNLOOM_CHECK(
      files_.publish(base() + "/tmp", base() + std::string(kTagName), kTag, Publish::kFirstWins));
  ATTNLOOM_CHECK(files_.make_directories(layout::state(base())));
  care_->sweep_temps();
  prepared_ = true;
  return ok_status();
}

// Two toolchains that are new to the root at the same moment can overwrite each other's line;
// writing until the line stays closes all but the last instant of that, and as every publication
// comes here, the next one mends the rest. Meanwhile a line that is missing is a miss, never a
// wrong kernel. (A lock would have to lie on the cache's own file system, where locks are what
// fails.)
Status OwnRoot::list_toolchain(const Fingerprint& fingerprint) {
  for (int attempt = 0; attempt < kListAttempts; ++attempt) {
    std::vector<Fingerprint> list = toolchains();
    if (!add_toolchain(list, fingerprint)) return ok_status();
    ATTNLOOM_CHECK(files_.publish(base() + "/tmp", layout::toolchains(base()),
                                  print_toolchains(list), Publish::kReplace));
  }
  return ok_status();
}

Status OwnRoot::publish(const std::string& request_key, const Artifact& artifact,
                        const std::function<std::string()>& encode) {
  ATTNLOOM_CHECK(prepare());
  const std::string& fingerprint = artifact.fingerprint.hex;
  const std::string path = layout::entry(base(), request_key, fingerprint);
  const auto present = read(request_key, fingerprint, Unpack::kCubinOnly);
  if (!present || (!present->has_ptx && !artifact.ptx.empty())) {
    // What is still there under the name is not an entry we may use, so it is replaced as well.
    const bool replace = files_.info(path).exists;
    ATTNLOOM_CHECK(files_.make_directories(path.substr(0, path.find_last_of('/'))));
    const std::string bytes = encode();
    ATTNLOOM_CHECK(files_.publish(layout::temps(base()), path, bytes,
                                  replace ? Publish::kReplace : Publish::kFirstWins));
    ++published_;
    ATTNLOOM_CHECK(list_toolchain(artifact.fingerprint));
    care_->published(path, bytes.size());
    return ok_status();
  }
  return list_toolchain(artifact.fingerprint);
}

}  // namespace attnloom
