// SPDX-License-Identifier: Apache-2.0
#include "cache/root_care.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <set>
#include <utility>
#include <vector>

#include "cache/layout.h"
#include "cache/own_files.h"

namespace attnloom {
namespace {

constexpr std::int64_t kSecondNs = 1'000'000'000;
constexpr std::int64_t kTouchEveryNs = 3600 * kSecondNs;
constexpr std::int64_t kYoungNs = 600 * kSecondNs;
constexpr std::int64_t kStaleTempNs = 3600 * kSecondNs;
constexpr std::int64_t kCollectEveryNs = 60 * kSecondNs;
constexpr std::uint64_t kSizeUnitBytes = 64 << 10;
constexpr std::size_t kMostQuarantined = 32;
constexpr std::uint64_t kMostQuarantinedBytes = 64 << 20;

std::uint64_t size_units(std::uint64_t bytes) {
  return (bytes + kSizeUnitBytes - 1) / kSizeUnitBytes;
}

}  // namespace

RootCare::RootCare(FileSystem& files, std::string base, CareOptions options,
                   std::function<void(const std::string&)> warn)
    : files_(files),
      base_(std::move(base)),
      options_(std::move(options)),
      warn_(std::move(warn)),
      pins_(files, base_),
      failures_(files, base_) {}

std::int64_t RootCare::now_ns() const {
  if (options_.now_ns) return options_.now_ns();
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

void RootCare::used(const std::string& path, std::int64_t mtime_ns) {
  const std::int64_t now = now_ns();
  if (cannot_touch_ || std::llabs(now - mtime_ns) <= kTouchEveryNs) return;
  // A root that cannot be written is not tried at every hit.
  if (!files_.touch(path, now).ok()) cannot_touch_ = true;
}

void RootCare::published(const std::string& path, std::uint64_t bytes) {
  if (cannot_count_) return;
  // By our clock: that of a file server may be hours off, and the entry would be evicted at once.
  (void)files_.touch(path, now_ns());
  const std::string size = layout::state(base_) + "/size";
  if (!files_.info(size).exists) {
    count_anew();
  } else if (!files_.append(size, std::string(size_units(bytes), '+')).ok()) {
    cannot_count_ = true;
  }
  const std::uint64_t counted = files_.info(size).bytes * kSizeUnitBytes;
  if (counted > options_.max_bytes && !collected_just_now()) collect();
}

void RootCare::count_anew() {
  set_size(bytes_of(list_entries(files_, base_)));
}

void RootCare::set_size(std::uint64_t bytes) {
  const std::string path = layout::state(base_) + "/size";
  const std::string text(size_units(bytes), '+');
  // Without it every publication would count the whole root.
  if (!files_.publish(layout::temps(base_), path, text, Publish::kReplace).ok())
    cannot_count_ = true;
}

bool RootCare::collected_just_now() const {
  const FileInfo info = files_.info(layout::state(base_) + "/gc.lock");
  return info.exists && std::llabs(now_ns() - info.mtime_ns) < kCollectEveryNs;
}

Collection RootCare::collect() {
  Collection done;
  const std::string path = layout::state(base_) + "/gc.lock";
  const Result<FileLock> lock = files_.try_lock(path);
  if (lock.ok() && lock.value() == nullptr) return done;
  // The time of the last collection. A failure costs a collection too many.
  (void)files_.touch(path, now_ns());
  done.ran = true;
  done.temps = sweep_temps();
  done.failures = failures_.sweep(now_ns());
  trim_quarantine();
  evict(done);
  set_size(done.bytes - done.evicted_bytes);
  return done;
}

void RootCare::evict(Collection& done) {
  std::vector<OwnFile> entries = list_entries(files_, base_);
  done.entries = entries.size();
  done.bytes = bytes_of(entries);
  const std::set<std::string> pinned = pins_.all();
  const auto kept = std::partition(entries.begin(), entries.end(), [&](const OwnFile& entry) {
    return pinned.count(entry.request_key) == 0;
  });
  for (auto entry = kept; entry != entries.end(); ++entry) done.pinned_bytes += entry->bytes;
  entries.erase(kept, entries.end());
  if (done.bytes <= options_.max_bytes) return;
  std::sort(entries.begin(), entries.end(), [](const OwnFile& a, const OwnFile& b) {
    return std::tie(a.mtime_ns, a.path) < std::tie(b.mtime_ns, b.path);
  });
  const std::int64_t now = now_ns();
  const std::uint64_t wanted = options_.max_bytes / 10 * 9;
  for (const OwnFile& entry : entries) {
    if (done.bytes - done.evicted_bytes <= wanted) break;
    // Used, or replaced by one that holds more, since it was listed.
    const bool same = files_.info(entry.path).mtime_ns == entry.mtime_ns;
    if (!same || std::llabs(now - entry.mtime_ns) < kYoungNs) continue;
    if (!remove_entry(files_, entry.path).ok()) continue;
    ++done.evicted;
    done.evicted_bytes += entry.bytes;
  }
  evicted_ += done.evicted;
  evicted_bytes_ += done.evicted_bytes;
  if (done.pinned_bytes > options_.max_bytes && warn_) {
    warn_("the pinned entries alone outgrow the limit of " + std::to_string(options_.max_bytes) +
          " bytes of " + base_ +
          "; raise cache_max_size (ATTNLOOM_CACHE_MAX_SIZE), or unpin some of them");
  }
}

Cleared RootCare::clear(ClearPinned pinned) {
  Cleared done;
  const std::set<std::string> kept =
      pinned == ClearPinned::kYes ? std::set<std::string>() : pins_.all();
  for (const OwnFile& entry : list_entries(files_, base_)) {
    if (kept.count(entry.request_key) != 0 || !remove_entry(files_, entry.path).ok()) continue;
    ++done.entries;
    done.bytes += entry.bytes;
  }
  done.failures = static_cast<std::uint64_t>(failures_.sweep(now_ns(), true));
  const std::string quarantine = layout::quarantine(base_);
  if (const auto names = files_.list(quarantine); names.ok()) {
    for (const std::string& name : *names)
      if (files_.remove_tree(quarantine + "/" + name).ok()) ++done.quarantined;
  }
  if (files_.info(layout::state(base_)).exists) count_anew();
  return done;
}

int RootCare::sweep_temps() {
  const std::string directory = layout::temps(base_);
  const auto names = files_.list(directory);
  if (!names.ok()) return 0;
  const std::int64_t now = now_ns();
  int removed = 0;
  for (const std::string& name : *names) {
    const FileInfo info = files_.info(directory + "/" + name);
    // A failure leaves the file for the next sweep.
    if (info.is_regular && now - info.mtime_ns > kStaleTempNs &&
        files_.remove(directory + "/" + name).ok())
      ++removed;
  }
  return removed;
}

void RootCare::trim_quarantine() {
  const std::string directory = layout::quarantine(base_);
  const auto names = files_.list(directory);
  if (!names.ok()) return;
  std::vector<std::pair<FileInfo, std::string>> found;
  for (const std::string& name : *names)
    found.emplace_back(files_.info(directory + "/" + name), directory + "/" + name);
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
    return std::tie(b.first.mtime_ns, b.second) < std::tie(a.first.mtime_ns, a.second);
  });
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    bytes += found[i].first.bytes;
    // A failure leaves it for the next time.
    if (i >= kMostQuarantined || bytes > kMostQuarantinedBytes)
      (void)files_.remove_tree(found[i].second);
  }
}

}  // namespace attnloom
