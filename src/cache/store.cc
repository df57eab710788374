// SPDX-License-Identifier: Apache-2.0
#include "cache/store.h"

#include <atomic>
#include <chrono>
#include <filesystem>
#include <mutex>
#include <set>
#include <system_error>
#include <utility>

#include "cache/entry.h"
#include "cache/root_check.h"
#include "cache/toolchain_list.h"

namespace attnloom {
namespace {

constexpr std::string_view kTagName = "/CACHEDIR.TAG";
// The signature is that of the cache directory tagging convention: backup programs skip such a
// directory.
constexpr std::string_view kTag =
    "Signature: 8a477f597d28d172789f06886806bc55\n# Attnloom's kernel cache: may be deleted at any "
    "time.\n";
constexpr const char* kOverride = "name another directory by cache_dir (ATTNLOOM_CACHE_DIR)";
constexpr std::int64_t kStaleTempNs = std::int64_t{3600} * 1'000'000'000;
constexpr int kListAttempts = 8;
constexpr int kQuarantineNames = 8;
constexpr std::size_t kMostWarnings = 1024;

std::string list_path(const std::string& base) {
  return base + "/TOOLCHAINS";
}

std::string entry_path(const std::string& base, const std::string& request_key,
                       const std::string& fingerprint) {
  return base + "/k/" + request_key.substr(0, 2) + "/" + request_key + "." + fingerprint + ".alk";
}

std::string file_name(const std::string& path) {
  return path.substr(path.find_last_of('/') + 1);
}

}  // namespace

struct Store::State {
  State(FileSystem& files, StoreOptions options) : files(files), options(std::move(options)) {}

  // One line for each distinct text: an entry that is asked for in every step must not fill the
  // log.
  void warn(const std::string& text) {
    {
      const std::scoped_lock lock(mutex);
      if (warned.size() >= kMostWarnings || !warned.insert(text).second) return;
    }
    if (options.warn) options.warn(text);
  }

  std::string base() const { return root + "/v1"; }

  std::vector<Fingerprint> toolchains(const std::string& base) {
    const auto text = files.read(list_path(base));
    return text.ok() ? parse_toolchains(*text) : std::vector<Fingerprint>();
  }

  // Out of the way and kept for whoever wants to know, under the same name, so a fault that repeats
  // takes no more room.
  void quarantine(const std::string& path, const std::string& reason) {
    ++quarantined;
    const std::string to = base() + "/quarantine/" + file_name(path);
    bool moved = files.make_directories(base() + "/quarantine").ok() && files.rename(path, to).ok();
    // A directory cannot take the name of one that is there already.
    for (int i = 1; !moved && i < kQuarantineNames; ++i)
      moved = files.rename(path, to + "." + std::to_string(i)).ok();
    warn("cache entry " + path + " is damaged (" + reason + ") and " +
         (moved ? "was moved to quarantine" : "cannot be moved away") +
         "; the kernel is compiled again");
  }

  std::optional<Found> look(const std::string& base, Layer layer, const std::string& request_key,
                            const Fingerprint& toolchain, const std::string& target, Need need);
  std::optional<Entry> read_own(const std::string& path, const std::string& request_key,
                                const std::string& fingerprint, Unpack unpack);
  std::string check(const Result<Entry>& entry, const std::string& request_key,
                    const std::string& fingerprint);
  Status prepare();
  Status list_toolchain(const Fingerprint& fingerprint);
  void sweep_temps();
  Status write(const std::string& request_key, const Source& source, const Artifact& artifact);

  FileSystem& files;
  const StoreOptions options;
  std::string root;
  std::string refusal;
  std::mutex mutex;
  std::set<std::string> warned;
  std::atomic<bool> prepared{false};
  std::atomic<std::uint64_t> hits{0}, misses{0}, published{0}, quarantined{0}, write_failures{0};
};

Store::Store(FileSystem& files, StoreOptions options)
    : state_(std::make_unique<State>(files, std::move(options))) {
  if (state_->options.root.empty()) return;
  std::error_code ignored;
  std::filesystem::path root =
      std::filesystem::absolute(state_->options.root, ignored).lexically_normal();
  if (!root.has_filename()) root = root.parent_path();  // "/cache/"
  state_->refusal = refuse_root(files, root.string());
  if (state_->refusal.empty()) {
    state_->root = root.string();
    return;
  }
  state_->warn("cache directory " + root.string() + " is not used: " + state_->refusal +
               "; kernels stay in memory; " + kOverride);
}

Store::~Store() = default;

// "" or why the entry is not the one that its name says.
std::string Store::State::check(const Result<Entry>& entry, const std::string& request_key,
                                const std::string& fingerprint) {
  if (!entry.ok()) return entry.status().cause;
  if (entry->request_key != request_key) return "it is the entry of another key";
  if (entry->artifact.fingerprint.hex != fingerprint) return "it is the entry of another compiler";
  return {};
}

// nullopt for an entry that is absent, not ours or damaged.
std::optional<Entry> Store::State::read_own(const std::string& path, const std::string& request_key,
                                            const std::string& fingerprint, Unpack unpack) {
  const FileInfo info = files.info(path);
  if (!info.exists) return std::nullopt;
  if (const std::string reason = refuse_file(info); !reason.empty()) {
    warn("cache entry " + path + " is not used: " + reason);
    return std::nullopt;
  }
  if (!info.is_regular) {
    quarantine(path, "not a file");
    return std::nullopt;
  }
  const auto bytes = files.read(path);
  if (!bytes.ok())
    return std::nullopt;  // gone, stale or unreadable just now: a miss, not a damaged entry
  auto entry = decode_entry(*bytes, unpack);
  if (const std::string reason = check(entry, request_key, fingerprint); !reason.empty()) {
    quarantine(path, reason);
    return std::nullopt;
  }
  return std::move(entry).value();
}

std::optional<Found> Store::State::look(const std::string& base, Layer layer,
                                        const std::string& request_key,
                                        const Fingerprint& toolchain, const std::string& target,
                                        Need need) {
  const std::string path = entry_path(base, request_key, toolchain.hex);
  const Unpack unpack = need.ptx ? Unpack::kAll : Unpack::kCubinOnly;
  std::optional<Entry> entry;
  if (layer == Layer::kDisk) {
    entry = read_own(path, request_key, toolchain.hex, unpack);
  } else {
    const auto bytes = files.read(path);
    if (!bytes.ok()) return std::nullopt;
    auto decoded = decode_entry(*bytes, unpack);
    if (const std::string reason = check(decoded, request_key, toolchain.hex); !reason.empty()) {
      warn("read-only cache entry " + path + " is damaged (" + reason + ") and is passed over");
      return std::nullopt;
    }
    entry = std::move(decoded).value();
  }
  if (!entry || entry->artifact.target != target || (need.ptx && !entry->has_ptx))
    return std::nullopt;
  return Found{std::move(entry->artifact), kernel_key(request_key, toolchain), layer};
}

std::optional<Found> Store::find(const std::string& request_key, const std::string& target,
                                 Need need, int driver_version) {
  State& state = *state_;
  if (!is_key(request_key)) return std::nullopt;
  std::vector<std::pair<std::string, Layer>> layers;
  if (!state.root.empty()) layers.emplace_back(state.base(), Layer::kDisk);
  for (const std::string& folder : state.options.read_only)
    layers.emplace_back(folder + "/v1", Layer::kReadOnly);
  for (const auto& [base, layer] : layers) {
    for (const Fingerprint& toolchain : state.toolchains(base)) {
      if (driver_version != 0 && driver_version < toolchain.least_driver) continue;
      if (auto found = state.look(base, layer, request_key, toolchain, target, need)) {
        ++state.hits;
        return found;
      }
    }
  }
  ++state.misses;
  return std::nullopt;
}

// Files of writers that were killed. A live writer's file is younger by far.
void Store::State::sweep_temps() {
  const std::string directory = base() + "/tmp";
  const auto names = files.list(directory);
  if (!names.ok()) return;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const std::int64_t now_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
  for (const std::string& name : *names) {
    const FileInfo info = files.info(directory + "/" + name);
    // A failure leaves the file for the next sweep.
    if (info.is_regular && now_ns - info.mtime_ns > kStaleTempNs)
      (void)files.remove(directory + "/" + name);
  }
}

// Once, before the first write: a process that only reads leaves no trace.
Status Store::State::prepare() {
  if (prepared) return ok_status();
  ATTNLOOM_CHECK(files.make_directories(base() + "/tmp"));
  // Between the check at construction and now the directory may have been made by somebody else.
  if (const std::string reason = refuse_root(files, base()); !reason.empty()) {
    return make_error(Code::kCacheIo, root, "the directory must not be used: " + reason, kOverride);
  }
  ATTNLOOM_CHECK(
      files.publish(base() + "/tmp", base() + std::string(kTagName), kTag, Publish::kFirstWins));
  sweep_temps();
  prepared = true;
  return ok_status();
}

// Two toolchains that are new to the root at the same moment can overwrite each other's line;
// writing until the line stays closes all but the last instant of that, and as every publication
// comes here, the next one mends the rest. Meanwhile a line that is missing is a miss, never a
// wrong kernel. (A lock would have to lie on the cache's own file system, where locks are what
// fails.)
Status Store::State::list_toolchain(const Fingerprint& fingerprint) {
  for (int attempt = 0; attempt < kListAttempts; ++attempt) {
    std::vector<Fingerprint> list = toolchains(base());
    if (!add_toolchain(list, fingerprint)) return ok_status();
    ATTNLOOM_CHECK(files.publish(base() + "/tmp", list_path(base()), print_toolchains(list),
                                 Publish::kReplace));
  }
  return ok_status();
}

Status Store::State::write(const std::string& request_key, const Source& source,
                           const Artifact& artifact) {
  ATTNLOOM_CHECK(prepare());
  const std::string path = entry_path(base(), request_key, artifact.fingerprint.hex);
  const auto present = read_own(path, request_key, artifact.fingerprint.hex, Unpack::kCubinOnly);
  if (!present || (!present->has_ptx && !artifact.ptx.empty())) {
    // What is still there under the name is not an entry we may use, so it is replaced as well.
    const bool replace = files.info(path).exists;
    ATTNLOOM_CHECK(files.make_directories(path.substr(0, path.find_last_of('/'))));
    ATTNLOOM_CHECK(files.publish(base() + "/tmp", path, encode_entry(request_key, source, artifact),
                                 replace ? Publish::kReplace : Publish::kFirstWins));
    ++published;
  }
  return list_toolchain(artifact.fingerprint);
}

Status Store::publish(const std::string& request_key, const Source& source,
                      const Artifact& artifact) {
  State& state = *state_;
  if (state.root.empty()) return ok_status();
  if (!is_key(request_key) || !is_fingerprint(artifact.fingerprint.hex) || artifact.cubin.empty() ||
      artifact.target != source.target) {
    ++state.write_failures;
    return make_error(Code::kCacheIo, "", "not an artifact of this source: it is not stored");
  }
  const Status status = state.write(request_key, source, artifact);
  if (!status.ok()) {
    ++state.write_failures;
    state.warn("cache directory " + state.root + " cannot be written (" + status.cause +
               "); kernels stay in memory; " + kOverride);
  }
  return status;
}

const std::string& Store::root() const {
  return state_->root;
}
std::string Store::root_refusal() const {
  return state_->refusal;
}

StoreCounters Store::counters() const {
  return {state_->hits, state_->misses, state_->published, state_->quarantined,
          state_->write_failures};
}

std::string default_cache_root(const std::string& cache_dir, const std::string& xdg_cache_home,
                               const std::string& home) {
  if (!cache_dir.empty()) return cache_dir;
  // The base directory specification has relative values ignored.
  if (!xdg_cache_home.empty() && xdg_cache_home[0] == '/') return xdg_cache_home + "/attnloom";
  return home.empty() ? "" : home + "/.cache/attnloom";
}

}  // namespace attnloom
