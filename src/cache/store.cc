// SPDX-License-Identifier: Apache-2.0
#include "cache/store.h"

#include <atomic>
#include <mutex>
#include <set>
#include <utility>

#include "cache/entry.h"
#include "cache/own_root.h"
#include "cache/read_only_place.h"

namespace attnloom {
namespace {

constexpr std::size_t kMostWarnings = 1024;
constexpr const char* kTrustRemedy =
    "let this user or root own it alone, or sign its entries and name the keys by trust_keys "
    "(ATTNLOOM_TRUST_KEYS)";

bool loadable(const Fingerprint& toolchain, int driver_version) {
  return driver_version == 0 || driver_version >= toolchain.least_driver;
}

}  // namespace

struct Store::State {
  State(FileSystem& files, StoreOptions given)
      : options(std::move(given)),
        own(files, options.root, [this](const std::string& text) { warn(text); }) {
    for (const std::string& path : options.read_only) add_place(ReadOnlyPlace(files, path));
  }

  // Without keys nothing could vouch for what a refused place holds, so it is not even searched.
  void add_place(ReadOnlyPlace place) {
    if (options.trust_keys || place.distrust().empty()) {
      places.push_back(std::move(place));
      return;
    }
    ++untrusted;
    warn("the read-only cache " + place.path() + " is not used: " + place.distrust() + "; " +
         kTrustRemedy);
  }

  // One line for each distinct text: an entry that is asked for in every step must not fill the
  // log.
  void warn(const std::string& text) {
    {
      const std::scoped_lock lock(mutex);
      if (warned.size() >= kMostWarnings || !warned.insert(text).second) return;
    }
    if (options.warn) options.warn(text);
  }

  std::optional<Found> look(const std::string& request_key, const std::string& target, Need need,
                            int driver_version);
  std::optional<Entry> read(const ReadOnlyPlace& place, const std::string& request_key,
                            const std::string& fingerprint, Unpack unpack);
  // "" or why the entry must not be used.
  std::string distrust(const Entry& entry, const StoredEntry& stored) const;

  const StoreOptions options;
  std::mutex mutex;
  std::set<std::string> warned;
  OwnRoot own;
  std::vector<ReadOnlyPlace> places;
  std::atomic<std::uint64_t> hits{0}, misses{0}, write_failures{0}, untrusted{0};
};

Store::Store(FileSystem& files, StoreOptions options)
    : state_(std::make_unique<State>(files, std::move(options))) {}

Store::~Store() = default;

std::string Store::State::distrust(const Entry& entry, const StoredEntry& stored) const {
  if (options.trust_keys)
    return options.trust_keys->verify(facts_of(entry), stored.signature).cause;
  return stored.distrust;
}

std::optional<Entry> Store::State::read(const ReadOnlyPlace& place, const std::string& request_key,
                                        const std::string& fingerprint, Unpack unpack) {
  const auto stored = place.read(request_key, fingerprint);
  if (!stored.ok()) return std::nullopt;
  auto entry = decode_entry(stored->bytes, unpack);
  if (const std::string reason = refuse_entry(entry, request_key, fingerprint); !reason.empty()) {
    warn("the entry " + request_key + "." + fingerprint + " of " + place.path() + " is damaged (" +
         reason + ") and is passed over");
    return std::nullopt;
  }
  if (const std::string reason = distrust(*entry, *stored); !reason.empty()) {
    ++untrusted;
    warn("UNTRUSTED: the entry " + request_key + "." + fingerprint + " of " + place.path() +
         " is passed over: " + reason + "; " + kTrustRemedy);
    return std::nullopt;
  }
  return std::move(entry).value();
}

std::optional<Found> Store::State::look(const std::string& request_key, const std::string& target,
                                        Need need, int driver_version) {
  const Unpack unpack = need.ptx ? Unpack::kAll : Unpack::kCubinOnly;
  const auto suits = [&](const std::optional<Entry>& entry) {
    return entry && entry->artifact.target == target && (!need.ptx || entry->has_ptx);
  };
  const auto found = [&](Entry entry, const Fingerprint& toolchain, Layer layer) {
    return Found{std::move(entry.artifact), kernel_key(request_key, toolchain), layer};
  };
  for (const Fingerprint& toolchain : own.toolchains()) {
    if (!loadable(toolchain, driver_version)) continue;
    if (auto entry = own.read(request_key, toolchain.hex, unpack); suits(entry))
      return found(std::move(*entry), toolchain, Layer::kDisk);
  }
  for (const ReadOnlyPlace& place : places) {
    for (const Fingerprint& toolchain : place.toolchains()) {
      if (!loadable(toolchain, driver_version)) continue;
      if (auto entry = read(place, request_key, toolchain.hex, unpack); suits(entry))
        return found(std::move(*entry), toolchain, place.layer());
    }
  }
  return std::nullopt;
}

std::optional<Found> Store::find(const std::string& request_key, const std::string& target,
                                 Need need, int driver_version) {
  if (!is_key(request_key)) return std::nullopt;
  std::optional<Found> found = state_->look(request_key, target, need, driver_version);
  ++(found ? state_->hits : state_->misses);
  return found;
}

Status Store::publish(const std::string& request_key, const Source& source,
                      const Artifact& artifact) {
  State& state = *state_;
  if (state.own.path().empty()) return ok_status();
  if (!is_key(request_key) || !is_fingerprint(artifact.fingerprint.hex) || artifact.cubin.empty() ||
      artifact.target != source.target) {
    ++state.write_failures;
    return make_error(Code::kCacheIo, "", "not an artifact of this source: it is not stored");
  }
  const Status status = state.own.publish(
      request_key, artifact, [&] { return encode_entry(request_key, source, artifact); });
  if (!status.ok()) {
    ++state.write_failures;
    state.warn("cache directory " + state.own.path() + " cannot be written (" + status.cause +
               "); kernels stay in memory; " + kRootRemedy);
  }
  return status;
}

const std::string& Store::root() const {
  return state_->own.path();
}
const std::string& Store::root_refusal() const {
  return state_->own.refusal();
}

StoreCounters Store::counters() const {
  return {
      state_->hits,           state_->misses,   state_->own.published(), state_->own.quarantined(),
      state_->write_failures, state_->untrusted};
}

std::string default_cache_root(const std::string& cache_dir, const std::string& xdg_cache_home,
                               const std::string& home) {
  if (!cache_dir.empty()) return cache_dir;
  // The base directory specification has relative values ignored.
  if (!xdg_cache_home.empty() && xdg_cache_home[0] == '/') return xdg_cache_home + "/attnloom";
  return home.empty() ? "" : home + "/.cache/attnloom";
}

}  // namespace attnloom
