// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.h"

#include "engine/compile_limit.h"
#include "engine/engine_state.h"
#include "engine/targets.h"
#include "spec/check.h"

namespace attnloom {

namespace {

KernelMemoryLimits memory_limits(const EngineOptions& options) {
  KernelMemoryLimits limits;
  if (options.most_loaded_kernels > 0) limits.kernels = options.most_loaded_kernels;
  if (options.most_loaded_bytes > 0) limits.bytes = options.most_loaded_bytes;
  return limits;
}

}  // namespace

Engine::State::State(EngineOptions given)
    : options(std::move(given)),
      memory(memory_limits(options)),
      access_log(options.access_log, [this](const std::string& line) { options.log.warn(line); }),
      landings([jobs = options.jobs] { return jobs > 0 ? jobs : compile_limit(); }) {
  options.store.warn = [this](const std::string& line) { options.log.warn(line); };
  store = std::make_unique<Store>(*options.files, options.store);
}

Engine::Engine(EngineOptions options) : state_(std::make_unique<State>(std::move(options))) {}
Engine::~Engine() {
  state_->landings.stop();
}

Result<Backend*> Engine::State::make_backend() {
  if (Backend* made = backend_now()) return made;
  if (!options.make_backend) {
    return make_error(Code::kNoDevice, "",
                      "this context has no device: it compiles, caches and plans only",
                      "make a context with a device");
  }
  const std::lock_guard lock(backend_mutex_);
  if (Backend* made = backend_now()) return made;
  ATTNLOOM_TRY(backend_owner_, options.make_backend());
  const DeviceInfo& info = backend_owner_->device();
  options.log.info("device: " + info.name + ", " + info.target.name());
  backend.store(backend_owner_.get(), std::memory_order_release);
  return backend_owner_.get();
}

bool Engine::has_device() const {
  return static_cast<bool>(state_->options.make_backend);
}
Result<Backend*> Engine::backend() {
  return state_->make_backend();
}
void Engine::freeze(Freeze how) {
  state_->freeze.store(how, std::memory_order_relaxed);
}
Store& Engine::store() {
  return *state_->store;
}
const Log& Engine::log() const {
  return state_->options.log;
}

Result<std::shared_ptr<KernelSet>> Engine::open(std::string_view spec_json) {
  ATTNLOOM_TRY(const ParsedSpec parsed, parse_spec(spec_json));
  return open(parsed);
}

Result<std::shared_ptr<KernelSet>> Engine::open(const ParsedSpec& parsed) {
  ParsedSpec opened = parsed;
  const bool named = opened.spec.target.has_value();
  if (!named) {
    if (!has_device()) {
      return make_error(Code::kSpecInvalid, "$.target",
                        "a target is needed where there is no device; none was given",
                        "name one, such as \"sm_90a\"");
    }
    ATTNLOOM_TRY(Backend * device, backend());
    opened.spec.target = device->device().target;
  }
  ATTNLOOM_CHECK(check_spec(opened.spec));
  // A named target alone must not touch the device: look-ups and compiles need none. KernelSet
  // compares before it loads.
  ATTNLOOM_TRY(std::vector<KernelChoice> choices, kernel_set(opened.spec));
  return std::make_shared<KernelSet>(*this, std::move(opened), named, std::move(choices));
}

EngineCounters Engine::counters() const {
  const EngineTallies& from = state_->tallies;
  EngineCounters counters;
  counters.memory_hits = from.memory_hits;
  counters.disk_hits = from.disk_hits;
  counters.read_only_hits = from.read_only_hits;
  counters.bundle_hits = from.bundle_hits;
  counters.remote_hits = from.remote_hits;
  counters.misses = from.misses;
  counters.compiles = from.compiles;
  counters.compile_failures = from.compile_failures;
  counters.negative_hits = from.negative_hits;
  counters.step_downs = from.step_downs;
  counters.loads = from.loads;
  counters.launches = from.launches;
  counters.copies = from.copies;
  counters.compile_timeouts = from.compile_timeouts;
  counters.cancelled = from.cancelled;
  counters.frozen = from.frozen;
  counters.fallbacks = from.fallbacks;
  counters.rejected = from.rejected;
  counters.unloads = from.unloads;
  return counters;
}

Statistics Engine::statistics() const {
  const EngineTallies& from = state_->tallies;
  return {.engine = counters(),
          .store = state_->store->counters(),
          .memory_misses = from.memory_misses,
          .waits = from.waits,
          .compiles = from.compile_times.times()};
}

namespace {

Json device_json(const Backend* backend, bool has_device) {
  if (!has_device) return "none";
  if (!backend) return "not used yet";
  const DeviceInfo& info = backend->device();
  return {{"name", info.name},
          {"target", info.target.name()},
          {"sm_count", info.sm_count},
          {"shared_bytes_per_cta", info.shared_bytes_per_cta},
          {"driver_version", info.driver_version},
          {"simulated", info.simulated}};
}

Json counters_json(const EngineCounters& counters, const StoreCounters& store) {
  return {{"memory_hits", counters.memory_hits},
          {"disk_hits", counters.disk_hits},
          {"read_only_hits", counters.read_only_hits},
          {"bundle_hits", counters.bundle_hits},
          {"remote_hits", counters.remote_hits},
          {"misses", counters.misses},
          {"compiles", counters.compiles},
          {"compile_failures", counters.compile_failures},
          {"negative_hits", counters.negative_hits},
          {"step_downs", counters.step_downs},
          {"loads", counters.loads},
          {"launches", counters.launches},
          {"copies", counters.copies},
          {"compile_timeouts", counters.compile_timeouts},
          {"cancelled", counters.cancelled},
          {"frozen", counters.frozen},
          {"fallbacks", counters.fallbacks},
          {"rejected", counters.rejected},
          {"unloads", counters.unloads},
          {"published", store.published},
          {"quarantined", store.quarantined},
          {"write_failures", store.write_failures},
          {"untrusted", store.untrusted},
          {"remote_published", store.remote_published},
          {"remote_refused", store.remote_refused},
          {"remote_failures", store.remote_failures}};
}

}  // namespace

Json Engine::describe() const {
  Json described = state_->options.settings;
  described["device"] = device_json(state_->backend_now(), has_device());
  described["cache"]["root"] = state_->store->root();
  described["cache"]["refused"] = state_->store->root_refusal();
  described["counters"] = counters_json(counters(), state_->store->counters());
  const CompilePool::Figures pool = state_->landings.figures();
  described["compiles"] = {{"running", pool.running}, {"waiting", pool.waiting}};
  const KernelMemory::Figures memory = state_->memory.figures();
  described["memory"] = {{"kernels", memory.kernels}, {"bytes", memory.bytes}};
  return described;
}

}  // namespace attnloom
