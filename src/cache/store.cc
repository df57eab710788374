// SPDX-License-Identifier: Apache-2.0
#include "cache/store.h"

#include <atomic>
#include <mutex>
#include <set>
#include <utility>

#include "cache/entry.h"
#include "cache/own_root.h"
#include "cache/read_only_place.h"
#include "cache/remote.h"

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
    if (options.remote)
      remote.emplace(*options.remote, [this](const std::string& text) { warn(text); });
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
                            int driver_version, Asking asking);
  std::optional<Found> look_remote(const std::string& request_key, const std::string& target,
                                   Need need, int driver_version);
  void not_written(const Status& status);
  std::optional<Entry> read(const ReadOnlyPlace& place, const std::string& request_key,
                            const std::string& fingerprint, Unpack unpack);
  // "" or why the entry must not be used.
  std::string distrust(const Entry& entry, const StoredEntry& stored) const;

  const StoreOptions options;
  std::mutex mutex;
  std::set<std::string> warned;
  OwnRoot own;
  std::vector<ReadOnlyPlace> places;
  std::optional<RemoteCache> remote;
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
                                        Need need, int driver_version, Asking asking) {
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
  if (asking == Asking::kPoll) return std::nullopt;
  for (const ReadOnlyPlace& place : places) {
    for (const Fingerprint& toolchain : place.toolchains()) {
      if (!loadable(toolchain, driver_version)) continue;
      if (auto entry = read(place, request_key, toolchain.hex, unpack); suits(entry))
        return found(std::move(*entry), toolchain, place.layer());
    }
  }
  return look_remote(request_key, target, need, driver_version);
}

std::optional<Found> Store::State::look_remote(const std::string& request_key,
                                               const std::string& target, Need need,
                                               int driver_version) {
  if (!remote) return std::nullopt;
  for (const Fingerprint& toolchain : remote->toolchains()) {
    if (!loadable(toolchain, driver_version)) continue;
    auto got = remote->read(request_key, toolchain.hex);
    if (!got || got->entry.artifact.target != target || (need.ptx && !got->entry.has_ptx)) continue;
    Artifact& artifact = got->entry.artifact;
    if (!own.path().empty()) {
      const Status kept = own.publish(request_key, artifact, [&] { return got->bytes; });
      if (!kept.ok()) not_written(kept);
    }
    return Found{std::move(artifact), kernel_key(request_key, toolchain), Layer::kRemote};
  }
  return std::nullopt;
}

void Store::State::not_written(const Status& status) {
  ++write_failures;
  warn("cache directory " + own.path() + " cannot be written (" + status.cause +
       "); kernels stay in memory; " + kRootRemedy);
}

std::optional<Found> Store::find(const std::string& request_key, const std::string& target,
                                 Need need, int driver_version, Asking asking) {
  if (!is_key(request_key)) return std::nullopt;
  std::optional<Found> found = state_->look(request_key, target, need, driver_version, asking);
  if (found)
    ++state_->hits;
  else if (asking == Asking::kRequest)
    ++state_->misses;
  return found;
}

Status Store::publish(const std::string& request_key, const Source& source,
                      const Artifact& artifact) {
  State& state = *state_;
  const bool to_remote = state.remote && state.remote->writes();
  if (state.own.path().empty() && !to_remote) return ok_status();
  if (!is_key(request_key) || !is_fingerprint(artifact.fingerprint.hex) || artifact.cubin.empty() ||
      artifact.target != source.target) {
    ++state.write_failures;
    return make_error(Code::kCacheIo, "", "not an artifact of this source: it is not stored");
  }
  const auto encode = [&] { return encode_entry(request_key, source, artifact); };
  Status status;
  if (!state.own.path().empty()) status = state.own.publish(request_key, artifact, encode);
  if (!status.ok()) state.not_written(status);
  if (to_remote) {
    const Entry entry = {request_key, artifact, !artifact.ptx.empty(), {}};
    (void)state.remote->publish(entry, encode());  // it has warned
  }
  return status;
}

const std::string& Store::root() const {
  return state_->own.path();
}
const std::string& Store::root_refusal() const {
  return state_->own.refusal();
}

std::string Store::remote() const {
  return state_->remote ? state_->remote->text() : "";
}

StoreCounters Store::counters() const {
  StoreCounters counters = {
      state_->hits,           state_->misses,   state_->own.published(), state_->own.quarantined(),
      state_->write_failures, state_->untrusted};
  if (state_->remote) {
    counters.remote_published = state_->remote->published();
    counters.remote_refused = state_->remote->refused();
    counters.remote_failures = state_->remote->failures();
  }
  return counters;
}

std::string default_cache_root(const std::string& cache_dir, const std::string& xdg_cache_home,
                               const std::string& home) {
  if (!cache_dir.empty()) return cache_dir;
  // The base directory specification has relative values ignored.
  if (!xdg_cache_home.empty() && xdg_cache_home[0] == '/') return xdg_cache_home + "/attnloom";
  return home.empty() ? "" : home + "/.cache/attnloom";
}

}  // namespace attnloom
