// SPDX-License-Identifier: Apache-2.0
#include "runtime/sim_backend.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "sim/tensor_map.h"

namespace attnloom {
namespace {

class SimKernel : public LoadedKernel {
 public:
  SimKernel(std::shared_ptr<const sim::Module> module, std::string entry)
      : module(std::move(module)), entry(std::move(entry)) {}
  std::shared_ptr<const sim::Module> module;
  std::string entry;
};

// How many copies had been queued when the event was recorded; 0 = never recorded.
class SimEvent : public Event {
 public:
  std::uint64_t position = 0;
};

struct FreeHost {
  void operator()(void* block) const {
    ::operator delete (block, std::align_val_t{kHostAlignment});
  }
};

struct PendingCopy {
  DeviceAddress to = 0;
  std::span<const std::byte> from;
};

constexpr std::uint64_t kAll = std::numeric_limits<std::uint64_t>::max();

void add_findings(std::vector<sim::Finding>& all, std::vector<sim::Finding> more) {
  for (sim::Finding& finding : more) {
    bool known = false;
    for (sim::Finding& old : all) {
      if (old.kind != finding.kind || old.kernel != finding.kernel || old.place != finding.place)
        continue;
      old.count += finding.count;
      known = true;
      break;
    }
    if (!known) all.push_back(std::move(finding));
  }
}

// The simulator calls every bad address LAUNCH, as a kernel would have used it; here a caller gave
// it.
Status of_argument(Status status, const char* argument) {
  if (status.code != Code::kLaunch) return status;
  status.code = Code::kArgumentInvalid;
  status.path = argument;
  return status;
}

}  // namespace

struct SimBackend::State {
  std::mutex mutex;
  sim::Profile profile;
  sim::Options options;
  DeviceInfo info;
  sim::Memory memory;
  std::deque<PendingCopy> pending;
  std::vector<std::unique_ptr<void, FreeHost>> host_blocks;
  std::uint64_t performed = 0;  // copies done; pending[0] is copy number performed + 1
  sim::Report report;

  // REQUIRES: mutex held. Performs the copies up to number `position`.
  Status perform(std::uint64_t position) {
    while (!pending.empty() && performed < position) {
      const PendingCopy copy = pending.front();
      pending.pop_front();
      ++performed;
      ATTNLOOM_CHECK(memory.write(copy.to, copy.from));
    }
    return ok_status();
  }
};

SimBackend::SimBackend(const sim::Profile& profile, const sim::Options& options)
    : state_(std::make_unique<State>()) {
  state_->profile = profile;
  state_->options = options;
  DeviceInfo& info = state_->info;
  info.name = "simulated " + profile.name;
  info.target = parse_target(profile.target).value_or(Target{});
  info.sm_count = profile.sm_count;
  info.shared_bytes_per_cta = profile.shared_bytes_per_cta;
  info.simulated = true;
}

SimBackend::~SimBackend() = default;

sim::Report SimBackend::take_report() {
  const std::lock_guard lock(state_->mutex);
  return std::exchange(state_->report, {});
}

void SimBackend::set_seed(std::uint64_t seed) {
  const std::lock_guard lock(state_->mutex);
  state_->options.seed = seed;
}

const DeviceInfo& SimBackend::device() const {
  return state_->info;
}

Result<std::shared_ptr<LoadedKernel>> SimBackend::load(const Artifact& artifact,
                                                       const std::string& entry, int shared_bytes) {
  if (artifact.ptx.empty()) {
    return make_error(Code::kLoadFailed, "",
                      "the artifact of " + entry + " holds no PTX, which the simulator runs",
                      "compile again, or ship the cache with PTX");
  }
  if (shared_bytes > state_->info.shared_bytes_per_cta) {
    return make_error(Code::kResourceLimit, "$.tile",
                      entry + " needs " + std::to_string(shared_bytes) +
                          " bytes of shared memory; " + state_->info.name + " allows " +
                          std::to_string(state_->info.shared_bytes_per_cta));
  }
  ATTNLOOM_TRY(std::shared_ptr<const sim::Module> module, sim::load_module(artifact.ptx));
  if (!module->has_entry(entry))
    return make_error(Code::kLoadFailed, "", "the PTX has no entry named " + entry);
  return std::shared_ptr<LoadedKernel>(std::make_shared<SimKernel>(std::move(module), entry));
}

Status SimBackend::launch(LoadedKernel& kernel, const LaunchShape& shape,
                          std::span<const std::byte> args, Stream /*stream*/) {
  const SimKernel& loaded = static_cast<const SimKernel&>(kernel);
  const std::lock_guard lock(state_->mutex);
  ATTNLOOM_CHECK(state_->perform(kAll));
  sim::LaunchConfig config;
  config.entry = loaded.entry;
  config.grid[0] = shape.grid;
  config.block[0] = shape.block;
  config.dynamic_shared_bytes = shape.shared_bytes;
  config.params = args;
  ATTNLOOM_TRY(sim::Report report, sim::launch(state_->profile, *loaded.module, state_->memory,
                                               config, state_->options));
  add_findings(state_->report.findings, std::move(report.findings));
  state_->report.counters += report.counters;
  return ok_status();
}

Status SimBackend::copy_in_async(DeviceAddress to, std::span<const std::byte> from,
                                 Stream /*stream*/) {
  const std::lock_guard lock(state_->mutex);
  state_->pending.push_back({to, from});
  return ok_status();
}

Result<TensorMap> SimBackend::encode_tensor_map(const TensorMapShape& shape) {
  return sim::encode_tensor_map(shape);
}

Result<std::unique_ptr<Event>> SimBackend::make_event() {
  return std::unique_ptr<Event>(std::make_unique<SimEvent>());
}

Status SimBackend::record(Event& event, Stream /*stream*/) {
  const std::lock_guard lock(state_->mutex);
  static_cast<SimEvent&>(event).position = state_->performed + state_->pending.size();
  return ok_status();
}

Status SimBackend::wait(Event& event) {
  const std::lock_guard lock(state_->mutex);
  return state_->perform(static_cast<SimEvent&>(event).position);
}

Result<bool> SimBackend::is_capturing(Stream /*stream*/) {
  return false;
}

Status SimBackend::synchronize(Stream /*stream*/) {
  const std::lock_guard lock(state_->mutex);
  return state_->perform(kAll);
}

Result<DeviceAddress> SimBackend::allocate(std::size_t bytes, const std::string& label) {
  const std::lock_guard lock(state_->mutex);
  Result<DeviceAddress> address = state_->memory.allocate(bytes, label);
  if (!address.ok()) return of_argument(address.status(), "bytes");
  return address;
}

Status SimBackend::release(DeviceAddress address) {
  const std::lock_guard lock(state_->mutex);
  ATTNLOOM_CHECK(state_->perform(kAll));
  return of_argument(state_->memory.free(address), "address");
}

Result<void*> SimBackend::allocate_host(std::size_t bytes) {
  std::unique_ptr<void, FreeHost> block(
      ::operator new (bytes, std::align_val_t{kHostAlignment}, std::nothrow));
  if (!block)
    return make_error(Code::kOutOfMemory, "bytes",
                      std::to_string(bytes) + " bytes of host memory are not to be had");
  const std::lock_guard lock(state_->mutex);
  return state_->host_blocks.emplace_back(std::move(block)).get();
}

Status SimBackend::release_host(void* address) {
  const std::lock_guard lock(state_->mutex);
  ATTNLOOM_CHECK(state_->perform(kAll));
  const auto held = std::find_if(state_->host_blocks.begin(), state_->host_blocks.end(),
                                 [&](const auto& block) { return block.get() == address; });
  if (held == state_->host_blocks.end())
    return make_error(Code::kArgumentInvalid, "address",
                      "no allocation of host memory begins there");
  state_->host_blocks.erase(held);
  return ok_status();
}

Status SimBackend::copy_in(DeviceAddress to, std::span<const std::byte> from) {
  const std::lock_guard lock(state_->mutex);
  ATTNLOOM_CHECK(state_->perform(kAll));
  return of_argument(state_->memory.write(to, from), "to");
}

Status SimBackend::copy_out(std::span<std::byte> to, DeviceAddress from) {
  const std::lock_guard lock(state_->mutex);
  ATTNLOOM_CHECK(state_->perform(kAll));
  return of_argument(state_->memory.read(from, to), "from");
}

}  // namespace attnloom
