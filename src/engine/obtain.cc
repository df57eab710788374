// SPDX-License-Identifier: Apache-2.0
// From a Source to an artifact: memory, store, compile. Nothing about a failure is kept: the next
// call tries again.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>

#include "engine/engine_state.h"

namespace attnloom {
namespace {

// After this long a waiter is told who holds the lock, so that nobody kills a process that only
// waits.
constexpr std::chrono::milliseconds kSayWhoHolds{5'000};

std::string seconds_text(std::chrono::steady_clock::duration time) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.2f s", std::chrono::duration<double>(time).count());
  return text;
}

Origin origin_of(Layer layer) {
  constexpr std::array<Origin, kLayers> kOrigins = {Origin::kDisk, Origin::kReadOnly,
                                                    Origin::kBundle, Origin::kRemote};
  return kOrigins[static_cast<std::size_t>(layer)];
}

std::atomic<std::uint64_t>& hits_of(EngineTallies& tallies, Layer layer) {
  const std::array<std::atomic<std::uint64_t>*, kLayers> all = {
      &tallies.disk_hits, &tallies.read_only_hits, &tallies.bundle_hits, &tallies.remote_hits};
  return *all[static_cast<std::size_t>(layer)];
}

bool has_parts(const Artifact& artifact, const Need& need) {
  return (!need.cubin || !artifact.cubin.empty()) && (!need.ptx || !artifact.ptx.empty());
}

}  // namespace

// What was found before the device was known may lack the part that the device needs; that is a
// miss here too.
std::shared_ptr<BuiltKernel> Engine::State::in_memory(const std::string& request_key) {
  const Need parts = need();
  const std::lock_guard lock(memory_mutex_);
  const auto found = memory_.find(request_key);
  if (found == memory_.end() || !has_parts(found->second->artifact, parts)) return nullptr;
  return found->second;
}

std::shared_ptr<BuiltKernel> Engine::State::keep(const std::string& request_key,
                                                 std::shared_ptr<BuiltKernel> built) {
  const Need parts = need();
  const std::lock_guard lock(memory_mutex_);
  std::shared_ptr<BuiltKernel>& place = memory_[request_key];
  if (!place || !has_parts(place->artifact, parts)) place = std::move(built);
  return place;
}

// cuda loads the cubin, the simulator the PTX; without a device the store is filled for somebody
// else's.
Need Engine::State::need() const {
  const Backend* device = backend_now();
  const bool simulated = device && device->device().simulated;
  return {.cubin = !simulated, .ptx = simulated};
}

int Engine::State::driver_version() const {
  const Backend* device = backend_now();
  return device ? device->device().driver_version : 0;
}

std::shared_ptr<BuiltKernel> Engine::State::in_store(const Source& source,
                                                     const std::string& request_key,
                                                     Asking asking) {
  std::optional<Found> found =
      store->find(request_key, source.target, need(), driver_version(), asking);
  if (!found) return nullptr;
  auto built = std::make_shared<BuiltKernel>();
  built->artifact = std::move(found->artifact);
  built->kernel_key = std::move(found->kernel_key);
  built->origin = origin_of(found->layer);
  count(hits_of(tallies, found->layer));
  return keep(request_key, std::move(built));
}

Obtained Engine::State::find(const Source& source, const std::string& request_key) {
  if (std::shared_ptr<BuiltKernel> built = in_memory(request_key)) {
    count(tallies.memory_hits);
    return {std::move(built), Origin::kMemory};
  }
  bool worked = false;
  Result<std::shared_ptr<BuiltKernel>> found =
      flight_.run("find " + request_key, [&]() -> Result<std::shared_ptr<BuiltKernel>> {
        if (std::shared_ptr<BuiltKernel> landed = in_memory(request_key)) return landed;
        worked = true;
        return in_store(source, request_key);
      });
  if (!found.ok() || !found.value()) return {};
  if (!worked) count(tallies.memory_hits);
  return {found.value(), worked ? found.value()->origin : Origin::kMemory};
}

Result<Obtained> Engine::State::obtain(const Source& source, const std::string& request_key,
                                       const std::string& label) {
  bool worked = false;
  Result<std::shared_ptr<BuiltKernel>> built =
      flight_.run(request_key, [&]() -> Result<std::shared_ptr<BuiltKernel>> {
        // Whoever flew before us may have landed between our look-up and this call.
        if (std::shared_ptr<BuiltKernel> landed = in_memory(request_key)) return landed;
        worked = true;
        return compile(source, request_key, label);
      });
  if (!built.ok()) return built.status();
  if (!worked) count(tallies.memory_hits);
  const Origin origin = worked ? built.value()->origin : Origin::kMemory;
  return Obtained{std::move(built).value(), origin};
}

NodeLock Engine::State::node_lock(const std::string& request_key,
                                  const std::function<bool()>& done) {
  const auto notice = [this](const std::string& holder) {
    options.log.warn("waiting for another process that compiles the same kernel: " + holder);
  };
  const std::chrono::milliseconds first = std::min(kSayWhoHolds, options.lock_patience);
  bool finished = false;
  const auto watch = [&] { return finished = finished || (done && done()); };
  NodeLock lock = NodeLock::acquire(options.lock_directory, request_key, first, watch, notice);
  if (lock.held() || finished || first == options.lock_patience) return lock;
  return NodeLock::acquire(options.lock_directory, request_key, options.lock_patience - first,
                           watch, notice);
}

Result<std::shared_ptr<BuiltKernel>> Engine::State::compile(const Source& source,
                                                            const std::string& request_key,
                                                            const std::string& label) {
  std::shared_ptr<BuiltKernel> stored;
  const auto look = [&](Asking asking) {
    if (!stored) stored = in_store(source, request_key, asking);
    return stored != nullptr;
  };
  std::optional<NodeLock> lock;
  if (!options.lock_directory.empty()) {
    lock.emplace(node_lock(request_key, [&] { return look(Asking::kPoll); }));
    // The holder before us may have another root and have published to a remote both share.
    if (look(Asking::kRequest)) return stored;
  }
  count(tallies.misses);
  options.log.info("compiling " + label + ", request_key " + request_key);
  const auto begin = std::chrono::steady_clock::now();
  count(tallies.compiles);
  Result<Artifact> artifact = options.toolchain->compile(source);
  if (!artifact.ok()) {
    count(tallies.compile_failures);
    options.log.info("failed to compile " + label + ": " + artifact.status().to_string());
    return artifact.status();
  }
  if (artifact->cubin.empty())
    return make_error(Code::kCompileFailed, "",
                      "the compiler reported success and gave no cubin for " + label);
  options.log.info("compiled " + label + " in " +
                   seconds_text(std::chrono::steady_clock::now() - begin));
  if (const Status published = store->publish(request_key, source, artifact.value());
      !published.ok())
    options.log.warn("the kernel is used but not kept: " + published.to_string());
  auto built = std::make_shared<BuiltKernel>();
  built->kernel_key = kernel_key(request_key, artifact->fingerprint);
  built->artifact = std::move(artifact).value();
  return keep(request_key, std::move(built));
}

Result<std::shared_ptr<LoadedKernel>> Engine::State::load(BuiltKernel& built,
                                                          const std::string& entry,
                                                          int shared_bytes) {
  const std::lock_guard lock(built.load_mutex);
  if (built.loaded) return built.loaded;
  ATTNLOOM_TRY(Backend * device, make_backend());
  ATTNLOOM_TRY(built.loaded, device->load(built.artifact, entry, shared_bytes));
  count(tallies.loads);
  return built.loaded;
}

}  // namespace attnloom
