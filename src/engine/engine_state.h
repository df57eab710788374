// SPDX-License-Identifier: Apache-2.0
// What the files of this room share: the engine's parts and the way from a Source to an artifact.
// Thread-safe.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "cache/flight.h"
#include "cache/store.h"
#include "engine/engine.h"

namespace attnloom {

// An artifact in this process. Immutable but for `loaded`, which is made once.
struct BuiltKernel {
  Artifact artifact;
  std::string kernel_key;
  Origin origin = Origin::kCompiled;
  std::mutex load_mutex;
  std::shared_ptr<LoadedKernel> loaded;  // guarded by load_mutex
};

// How a call found its artifact: the layer for whoever did the work, memory for everybody who came
// later.
struct Obtained {
  std::shared_ptr<BuiltKernel> built;
  Origin origin = Origin::kMemory;
};

struct EngineTallies {
  std::atomic<std::uint64_t> memory_hits{0}, disk_hits{0}, read_only_hits{0}, bundle_hits{0};
  std::atomic<std::uint64_t> remote_hits{0}, misses{0};
  std::atomic<std::uint64_t> compiles{0}, compile_failures{0}, step_downs{0};
  std::atomic<std::uint64_t> loads{0}, launches{0}, copies{0};
};

struct Engine::State {
  explicit State(EngineOptions given);

  // Memory, then the store. A null `built` when neither has it.
  Obtained find(const Source& source, const std::string& request_key);
  // The same, then one compile for all that ask at once. `label` names the kernel in log lines.
  Result<Obtained> obtain(const Source& source, const std::string& request_key,
                          const std::string& label);
  // Loads at most once. REQUIRES: the engine has a device.
  Result<std::shared_ptr<LoadedKernel>> load(BuiltKernel& built, const std::string& entry,
                                             int shared_bytes);

  // Null until backend() made it; lock-free.
  Backend* backend_now() const { return backend.load(std::memory_order_acquire); }
  Result<Backend*> make_backend();

  EngineOptions options;
  std::unique_ptr<Store> store;
  EngineTallies tallies;

 private:
  std::shared_ptr<BuiltKernel> in_memory(const std::string& request_key);
  std::shared_ptr<BuiltKernel> in_store(const Source& source, const std::string& request_key,
                                        Asking asking = Asking::kRequest);
  std::shared_ptr<BuiltKernel> keep(const std::string& request_key,
                                    std::shared_ptr<BuiltKernel> built);
  Result<std::shared_ptr<BuiltKernel>> compile(const Source& source, const std::string& request_key,
                                               const std::string& label);
  NodeLock node_lock(const std::string& request_key, const std::function<bool()>& done);

  Need need() const;
  int driver_version() const;

  Flight<BuiltKernel> flight_;
  std::mutex memory_mutex_;
  std::map<std::string, std::shared_ptr<BuiltKernel>> memory_;
  std::mutex backend_mutex_;
  std::unique_ptr<Backend> backend_owner_;
  std::atomic<Backend*> backend{nullptr};
};

inline void count(std::atomic<std::uint64_t>& tally) {
  tally.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace attnloom
