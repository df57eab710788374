// SPDX-License-Identifier: Apache-2.0
// From a Source to an artifact: memory, store, compile. Of failures only those are kept that the
// same text would meet again (failed_before.cc); after any other the next call tries again.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <utility>

#include "engine/engine_state.h"
#include "runtime/driver_policy.h"

namespace attnloom {
namespace {

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

}  // namespace

// cuda loads the cubin, the simulator the PTX; without a device the store is filled for somebody
// else's.
Need Engine::State::need() const {
  const Backend* device = backend_now();
  const bool simulated = device && device->device().simulated;
  return {.cubin = !simulated, .ptx = simulated};
}

int Engine::State::driver_version() const {
  const Backend* device = backend_now();
  return device ? device->device().driver_version : options.least_driver;
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
  built = memory.keep(request_key, std::move(built), need());
  memory.trim(KernelMemory::Trim::kUnloadedOnly);
  return built;
}

Obtained Engine::State::find(const Source& source, const std::string& request_key) {
  if (std::shared_ptr<BuiltKernel> built = memory.find(request_key, need())) {
    count(tallies.memory_hits);
    return {std::move(built), Origin::kMemory};
  }
  bool worked = false;
  Result<std::shared_ptr<BuiltKernel>> found =
      flight_.run("find " + request_key, [&]() -> Result<std::shared_ptr<BuiltKernel>> {
        if (std::shared_ptr<BuiltKernel> landed = memory.find(request_key, need())) return landed;
        worked = true;
        count(tallies.memory_misses);
        return in_store(source, request_key);
      });
  if (!found.ok() || !found.value()) return {};
  if (!worked) count(tallies.memory_hits);
  return {found.value(), worked ? found.value()->origin : Origin::kMemory};
}

AcquireOptions Engine::State::settled(AcquireOptions given) const {
  if (given.policy != Policy::kDefault) return given;
  given.policy = options.policy;
  if (given.timeout.count() == 0) given.timeout = options.policy_timeout;
  return given;
}

// A compile that would begin now.
Status Engine::State::may_compile(const std::string& request_key, const std::string& label) {
  const std::string what = label + " (request_key " + request_key + ")";
  const Freeze frozen = freeze.load(std::memory_order_relaxed);
  if (frozen == Freeze::kNone) {
    if (options.jit_warns) options.log.warn("no cache layer holds " + what + ": it is compiled");
    return ok_status();
  }
  count(tallies.frozen);
  if (frozen == Freeze::kWarn) {
    options.log.warn("compiled although the context is frozen: " + what);
    return ok_status();
  }
  return make_error(Code::kNotCached, "",
                    what + " would have to be compiled, and the context is frozen",
                    "prepare it before alm_context_freeze, or prewarm the cache with it");
}

Result<Obtained> Engine::State::obtain(const Source& source, const std::string& request_key,
                                       const std::string& label, const MissOptions& how) {
  Landings::Begin begin;
  begin.priority = how.priority;
  begin.in_memory = [&] { return memory.find(request_key, need()); };
  begin.allowed = [&] { return may_compile(request_key, label); };
  begin.work = [this, kept = std::make_shared<const Source>(source), request_key, label](
                   Interrupt& interrupt) { return compile(*kept, request_key, label, interrupt); };
  ATTNLOOM_TRY(const Landings::Started started, landings.start(request_key, begin));
  if (how.miss == Miss::kStart && !started.landing->outcome())
    return Obtained{nullptr, Origin::kMemory, started.landing};
  const std::optional<Landing::Outcome> outcome = started.landing->wait(how.until);
  if (!outcome) {
    return make_error(Code::kCompileTimeout, "",
                      label + " (request_key " + request_key + ") is still being compiled",
                      "call again later: the compile goes on");
  }
  if (!outcome->ok()) return outcome->status();
  const std::shared_ptr<BuiltKernel>& built = outcome->value();
  if (!started.ours) count(tallies.memory_hits);
  return Obtained{built, started.ours ? built->origin : Origin::kMemory, nullptr};
}

NodeLock Engine::State::node_lock(const std::string& request_key,
                                  const std::function<bool()>& done) {
  const auto say = [this](const char* what) {
    return [this, what](const std::string& holder) { options.log.warn(what + holder); };
  };
  constexpr const char* kGoesOn = "compiling without a lock on this node: ";
  const std::chrono::milliseconds first = std::min(options.say_who_holds, options.lock_patience);
  const std::chrono::milliseconds rest = options.lock_patience - first;
  bool finished = false;
  bool waited = false;
  // Called only while somebody else holds the lock.
  const auto watch = [&] {
    if (!std::exchange(waited, true)) count(tallies.waits);
    return finished = finished || (done && done());
  };
  NodeLock lock = NodeLock::acquire(
      options.lock_directory, request_key, first, watch,
      say(rest.count() == 0 ? kGoesOn
                            : "waiting for another process that compiles the same kernel: "));
  if (lock.held() || finished || rest.count() == 0) return lock;
  return NodeLock::acquire(options.lock_directory, request_key, rest, watch, say(kGoesOn));
}

// A compile for a driver that could not load the result is refused while nothing is lost yet. With
// a device of its own the compiler cannot be changed any more, and loading says the same.
Status Engine::State::check_compiler(const Source& source) {
  if (options.least_driver == 0) return ok_status();
  ATTNLOOM_TRY(const Fingerprint fingerprint, options.toolchain->fingerprint());
  const std::optional<Target> target = parse_target(source.target);
  return target ? check_driver(options.least_driver, fingerprint, *target) : ok_status();
}

Result<Artifact> Engine::State::run_compiler(const Source& source, const std::string& request_key,
                                             const std::string& label, Interrupt& interrupt) {
  ATTNLOOM_CHECK(check_compiler(source));
  count(tallies.misses);
  if (const std::optional<Status> failure = failed_before(request_key)) {
    options.log.info("failed before and is not compiled again: " + label + ", request_key " +
                     request_key);
    return *failure;
  }
  options.log.info("compiling " + label + ", request_key " + request_key);
  const auto begin = std::chrono::steady_clock::now();
  count(tallies.compiles);
  interrupt.start_clock(options.compile_timeout);
  Result<Artifact> artifact = options.toolchain->compile_interruptibly(source, interrupt);
  tallies.compile_times.add(std::chrono::steady_clock::now() - begin);
  if (artifact.ok() && artifact->cubin.empty()) {
    return make_error(Code::kCompileFailed, "",
                      "the compiler reported success and gave no cubin for " + label);
  }
  if (artifact.ok()) {
    options.log.info("compiled " + label + " in " +
                     seconds_text(std::chrono::steady_clock::now() - begin));
    return artifact;
  }
  count(tallies.compile_failures);
  Status error = artifact.status();
  if (error.code == Code::kCompileTimeout) {
    count(tallies.compile_timeouts);
    error = make_error(error.code, "",
                       label + " (request_key " + request_key + ") was not compiled within " +
                           std::to_string(options.compile_timeout.count()) + " ms",
                       "look for functors that unroll without end, or raise compile_timeout_ms");
  }
  if (error.code == Code::kCancelled) count(tallies.cancelled);
  keep_failure(request_key, error);
  options.log.info("failed to compile " + label + ": " + error.to_string());
  return error;
}

Landing::Outcome Engine::State::compile(const Source& source, const std::string& request_key,
                                        const std::string& label, Interrupt& interrupt) {
  std::shared_ptr<BuiltKernel> stored;
  const auto look = [&](Asking asking) {
    if (!stored) stored = in_store(source, request_key, asking);
    return stored != nullptr;
  };
  std::optional<NodeLock> lock;
  if (!options.lock_directory.empty() && !failed_here(request_key)) {
    lock.emplace(node_lock(request_key,
                           [&] { return look(Asking::kPoll) || interrupt.reason() != Code::kOk; }));
    // The holder before us may have another root, and have published to a place that both share.
    if (look(Asking::kRequest)) return stored;
  }
  ATTNLOOM_TRY(Artifact artifact, run_compiler(source, request_key, label, interrupt));
  // The store has warned, once for all kernels that fail alike.
  if (const Status published = store->publish(request_key, source, artifact); !published.ok())
    options.log.info("used but not kept: " + label + ": " + published.to_string());
  auto built = std::make_shared<BuiltKernel>();
  built->kernel_key = kernel_key(request_key, artifact.fingerprint);
  built->artifact = std::move(artifact);
  built = memory.keep(request_key, std::move(built), need());
  memory.trim(KernelMemory::Trim::kUnloadedOnly);
  return built;
}

Result<std::shared_ptr<LoadedKernel>> Engine::State::load(BuiltKernel& built,
                                                          const std::string& entry,
                                                          int shared_bytes) {
  const std::lock_guard lock(built.load_mutex);
  if (built.loaded) return built.loaded;
  ATTNLOOM_TRY(Backend * device, make_backend());
  ATTNLOOM_TRY(built.loaded, device->load(built.artifact, entry, shared_bytes));
  built.is_loaded = true;
  count(tallies.loads);
  tallies.unloads += memory.trim(KernelMemory::Trim::kAll);
  return built.loaded;
}

void Engine::State::reject(BuiltKernel& built, const std::string& request_key, const Status& why) {
  // Whoever finds a kernel rejected goes on only when it is out of memory and store, so that nobody
  // takes its successor for it.
  const std::lock_guard lock(reject_mutex_);
  if (built.rejected.exchange(true)) return;
  count(tallies.rejected);
  options.log.warn("the driver refused the cached kernel " + request_key +
                   ", which is compiled anew: " + why.to_string());
  store->reject(request_key, built.artifact.fingerprint.hex, "the driver refused it");
  memory.forget(request_key, built);
}

bool Engine::State::retain_if_captured(BuiltKernel& built, Stream stream) {
  const Result<bool> capturing = backend_now()->is_capturing(stream);
  if (!capturing.ok() || !*capturing) return false;
  built.retained.store(true);
  return true;
}

}  // namespace attnloom
