// SPDX-License-Identifier: Apache-2.0
#include "cache/store.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <set>
#include <utility>

#include "cache/entry.h"
#include "cache/layout.h"
#include "cache/own_files.h"
#include "cache/own_root.h"
#include "cache/read_only_place.h"
#include "cache/remote.h"

namespace attnloom {
namespace {

constexpr std::size_t kMostWarnings = 1024;

bool loadable(const Fingerprint& toolchain, int driver_version) {
  return driver_version == 0 || driver_version >= toolchain.least_driver;
}

}  // namespace

struct Store::State {
  State(FileSystem& file_system, StoreOptions given)
      : files(file_system),
        options(std::move(given)),
        own(
            files, options.root, [this](const std::string& text) { warn(text); }, options.care) {
    for (const std::string& named : options.read_only) add_place(ReadOnlyPlace(files, named));
    if (options.remote)
      remote.emplace(*options.remote, [this](const std::string& text) { warn(text); });
  }

  void add_place(ReadOnlyPlace place) {
    if (const Status& trouble = place.trouble(); !trouble.ok()) {
      ++(trouble.code == Code::kUntrusted ? untrusted : of(place.layer()).corrupt);
      warn("the bundle " + place.path() + " is passed over: " + trouble.to_string());
    } else if (!options.trust_keys && !place.distrust().empty()) {
      // Nothing could vouch for what it holds, so it is not even searched.
      ++untrusted;
      warn("the read-only cache " + place.path() + " is not used: " + place.distrust() + "; " +
           kTrustRemedy);
    } else {
      places.push_back(std::move(place));
    }
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
  bool is_rejected(const std::string& request_key, const std::string& fingerprint) {
    const std::scoped_lock lock(mutex);
    return rejected.contains(request_key + "." + fingerprint);
  }
  std::optional<Found> look_remote(const std::string& request_key, const std::string& target,
                                   Need need, int driver_version);
  // What a layer found, counted.
  Found give(const std::string& request_key, Entry entry, const Fingerprint& toolchain,
             Layer layer);
  void not_written(const Status& status);
  std::optional<Entry> read(const ReadOnlyPlace& place, const std::string& request_key,
                            const std::string& fingerprint, Unpack unpack);

  struct Tally {
    std::atomic<std::uint64_t> hits{0}, misses{0}, corrupt{0}, bytes{0};
  };
  Tally& of(Layer layer) { return layers[static_cast<std::size_t>(layer)]; }

  FileSystem& files;
  const StoreOptions options;
  std::mutex mutex;
  std::set<std::string> warned;
  std::set<std::string> rejected;  // "request_key.fingerprint"; guarded by mutex
  OwnRoot own;
  std::vector<ReadOnlyPlace> places;
  std::array<Tally, kLayers> layers;
  std::optional<RemoteCache> remote;
  std::atomic<std::uint64_t> hits{0}, misses{0}, write_failures{0}, untrusted{0};
};

Store::Store(FileSystem& files, StoreOptions options)
    : state_(std::make_unique<State>(files, std::move(options))) {}

Store::~Store() = default;

std::optional<Entry> Store::State::read(const ReadOnlyPlace& place, const std::string& request_key,
                                        const std::string& fingerprint, Unpack unpack) {
  if (is_rejected(request_key, fingerprint)) return std::nullopt;
  const auto pass_over = [&](std::atomic<std::uint64_t>& tally, const std::string& how) {
    ++tally;
    warn("the entry " + request_key + "." + fingerprint + " of " + place.path() + how);
    return std::nullopt;
  };
  const auto stored = place.read(request_key, fingerprint);
  if (!stored.ok()) {
    if (stored.status().code != Code::kCacheCorrupt) return std::nullopt;  // absent
    return pass_over(of(place.layer()).corrupt,
                     " is damaged (" + stored.status().cause + ") and is passed over");
  }
  auto entry = decode_entry(stored->bytes, unpack);
  if (const std::string reason = refuse_entry(entry, request_key, fingerprint); !reason.empty())
    return pass_over(of(place.layer()).corrupt, " is damaged (" + reason + ") and is passed over");
  if (const Status vouched = vouch(*entry, *stored, options.trust_keys.get(), false); !vouched.ok())
    return pass_over(untrusted, " is passed over: " + vouched.to_string());
  return std::move(entry).value();
}

Found Store::State::give(const std::string& request_key, Entry entry, const Fingerprint& toolchain,
                         Layer layer) {
  ++of(layer).hits;
  of(layer).bytes += entry.artifact.cubin.size() + entry.artifact.ptx.size();
  return {std::move(entry.artifact), kernel_key(request_key, toolchain), layer};
}

std::optional<Found> Store::State::look(const std::string& request_key, const std::string& target,
                                        Need need, int driver_version, Asking asking) {
  const Unpack unpack = need.ptx ? Unpack::kAll : Unpack::kCubinOnly;
  const auto suits = [&](const std::optional<Entry>& entry) {
    return entry && entry->artifact.target == target && (!need.ptx || entry->has_ptx);
  };
  for (const Fingerprint& toolchain : own.toolchains()) {
    if (!loadable(toolchain, driver_version)) continue;
    if (auto entry = own.read(request_key, toolchain.hex, unpack); suits(entry))
      return give(request_key, std::move(*entry), toolchain, Layer::kDisk);
  }
  if (asking == Asking::kPoll) return std::nullopt;
  if (!own.path().empty()) ++of(Layer::kDisk).misses;
  for (const ReadOnlyPlace& place : places) {
    for (const Fingerprint& toolchain : place.toolchains()) {
      if (!loadable(toolchain, driver_version)) continue;
      if (auto entry = read(place, request_key, toolchain.hex, unpack); suits(entry))
        return give(request_key, std::move(*entry), toolchain, place.layer());
    }
    ++of(place.layer()).misses;
  }
  return look_remote(request_key, target, need, driver_version);
}

std::optional<Found> Store::State::look_remote(const std::string& request_key,
                                               const std::string& target, Need need,
                                               int driver_version) {
  if (!remote) return std::nullopt;
  for (const Fingerprint& toolchain : remote->toolchains()) {
    if (!loadable(toolchain, driver_version)) continue;
    if (is_rejected(request_key, toolchain.hex)) continue;
    auto got = remote->read(request_key, toolchain.hex);
    if (!got || got->entry.artifact.target != target || (need.ptx && !got->entry.has_ptx)) continue;
    if (!own.path().empty()) {
      const Status kept = own.publish(request_key, got->entry.artifact, [&] { return got->bytes; });
      if (!kept.ok()) not_written(kept);
    }
    return give(request_key, std::move(got->entry), toolchain, Layer::kRemote);
  }
  ++of(Layer::kRemote).misses;
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
    const Status refused =
        make_error(Code::kCacheIo, "", "not an artifact of this source: it is not stored");
    state.not_written(refused);
    return refused;
  }
  std::string bytes;  // encoding packs the PTX: once for the root and the remote
  const auto encode = [&] {
    if (bytes.empty()) bytes = encode_entry(request_key, source, artifact);
    return bytes;
  };
  Status status;
  if (!state.own.path().empty()) status = state.own.publish(request_key, artifact, encode);
  if (!status.ok()) state.not_written(status);
  if (to_remote) {
    const Entry entry = {request_key, artifact, !artifact.ptx.empty(), {}};
    (void)state.remote->publish(entry, encode());  // it has warned
  }
  return status;
}

void Store::reject(const std::string& request_key, const std::string& fingerprint,
                   const std::string& reason) {
  if (!is_key(request_key) || !is_fingerprint(fingerprint)) return;
  {
    const std::scoped_lock lock(state_->mutex);
    state_->rejected.insert(request_key + "." + fingerprint);
  }
  state_->own.reject(request_key, fingerprint, reason);
}

namespace {

Status check_keys(const std::vector<std::string>& keys) {
  for (const std::string& key : keys) {
    if (!is_key(key)) {
      return make_error(Code::kArgumentInvalid, "", "\"" + key + "\" is no request_key",
                        "give 64 lower-case hexadecimal digits");
    }
  }
  return ok_status();
}

}  // namespace

Status Store::pin(const std::vector<std::string>& request_keys) {
  ATTNLOOM_CHECK(check_keys(request_keys));
  OwnRoot& own = state_->own;
  if (own.care() == nullptr || request_keys.empty()) return ok_status();
  ATTNLOOM_CHECK(own.prepare());
  return own.care()->pins().add(request_keys);
}

Status Store::unpin(const std::vector<std::string>& request_keys) {
  ATTNLOOM_CHECK(check_keys(request_keys));
  OwnRoot& own = state_->own;
  return own.care() == nullptr ? ok_status() : own.care()->pins().remove(request_keys);
}

std::set<std::string> Store::pins() const {
  RootCare* const care = state_->own.care();
  return care == nullptr ? std::set<std::string>() : care->pins().all();
}

std::optional<Status> Store::find_failure(const std::string& request_key,
                                          const std::string& fingerprint) const {
  RootCare* const care = state_->own.care();
  if (care == nullptr || !is_key(request_key) || !is_fingerprint(fingerprint)) return std::nullopt;
  return care->failures().find(request_key, fingerprint, care->now_ns());
}

void Store::keep_failure(const std::string& request_key, const std::string& fingerprint,
                         const Status& failure) {
  OwnRoot& own = state_->own;
  if (own.care() == nullptr || !is_lasting_failure(failure) || !is_key(request_key) ||
      !is_fingerprint(fingerprint))
    return;
  // The caller has the error itself; keeping it only saves work.
  if (own.prepare().ok())
    (void)own.care()->failures().keep(request_key, fingerprint, failure, own.care()->now_ns());
}

namespace {

bool lists(const std::vector<Fingerprint>& toolchains, const Fingerprint& compiler) {
  return std::any_of(toolchains.begin(), toolchains.end(),
                     [&](const Fingerprint& one) { return one.hex == compiler.hex; });
}

void add_to_catalog(const Result<std::string>& bytes, Layer layer, const std::string& place,
                    const std::vector<Fingerprint>& toolchains,
                    std::vector<CatalogEntry>& catalog) {
  if (!bytes.ok()) return;
  Result<CatalogEntry> entry = catalog_entry(bytes.value());
  if (!entry.ok()) return;
  entry->layer = layer;
  entry->place = place;
  entry->compiler_listed = lists(toolchains, entry->compiler);
  catalog.push_back(std::move(entry).value());
}

}  // namespace

std::vector<CatalogEntry> Store::catalog(std::size_t most) const {
  std::vector<CatalogEntry> catalog;
  const OwnRoot& own = state_->own;
  if (!own.path().empty()) {
    const std::vector<Fingerprint> toolchains = own.toolchains();
    for (const OwnFile& file : list_entries(state_->files, layout::base(own.path()))) {
      if (catalog.size() == most) return catalog;
      add_to_catalog(state_->files.read(file.path), Layer::kDisk, own.path(), toolchains, catalog);
    }
  }
  for (const ReadOnlyPlace& place : state_->places) {
    const std::vector<Fingerprint> toolchains = place.toolchains();
    for (const auto& [request_key, fingerprint] : place.list()) {
      if (catalog.size() == most) return catalog;
      const Result<StoredEntry> stored = place.read(request_key, fingerprint);
      if (stored.ok())
        add_to_catalog(stored->bytes, place.layer(), place.path(), toolchains, catalog);
    }
  }
  return catalog;
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

std::vector<BundleSummary> Store::bundles() const {
  std::vector<BundleSummary> all;
  for (const ReadOnlyPlace& place : state_->places)
    if (const BundleFile* bundle = place.bundle())
      all.push_back({place.path(), bundle->index().templates, bundle_targets(bundle->index())});
  return all;
}

StoreCounters Store::counters() const {
  const State& state = *state_;
  StoreCounters counters{.hits = state.hits,
                         .misses = state.misses,
                         .published = state.own.published(),
                         .quarantined = state.own.quarantined(),
                         .write_failures = state.write_failures,
                         .untrusted = state.untrusted,
                         .layers = {}};
  if (const RootCare* care = state.own.care()) {
    counters.evicted = care->evicted();
    counters.evicted_bytes = care->evicted_bytes();
  }
  for (std::size_t i = 0; i < counters.layers.size(); ++i) {
    const State::Tally& from = state.layers[i];
    counters.layers[i] = {from.hits, from.misses, from.corrupt, from.bytes};
  }
  counters.layers[static_cast<std::size_t>(Layer::kDisk)].corrupt = state.own.quarantined();
  if (state.remote) {
    counters.remote_published = state.remote->published();
    counters.remote_refused = state.remote->refused();
    counters.remote_failures = state.remote->failures();
  }
  return counters;
}

std::string default_cache_root(const std::string& cache_dir, const std::string& xdg_cache_home,
                               const std::string& home) {
  if (!cache_dir.empty()) return cache_dir;
  // The base directory specification has relative values ignored.
  if (!xdg_cache_home.empty() && xdg_cache_home[0] == '/') return xdg_cache_home + "/attnloom";
  // A relative one would scatter caches over whatever folders programs are started in.
  return home.starts_with('/') ? home + "/.cache/attnloom" : "";
}

}  // namespace attnloom
