// SPDX-License-Identifier: Apache-2.0
// What the files of this room share: the engine's parts and the way from a Source to an artifact.
// Thread-safe.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "cache/flight.h"
#include "cache/store.h"
#include "engine/access_log.h"
#include "engine/engine.h"
#include "engine/kernel_memory.h"
#include "engine/landing.h"
#include "engine/statistics.h"

namespace attnloom {

// How a call found its artifact: the layer for whoever did the work, memory for everybody who came
// later.
struct Obtained {
  std::shared_ptr<BuiltKernel> built;  // null while it is in the air
  Origin origin = Origin::kMemory;
  std::shared_ptr<Landing> landing;  // with Miss::kStart only
};

// What a miss leads to.
enum class Miss { kError, kStart, kWait };

struct MissOptions {
  Miss miss = Miss::kError;
  std::optional<Landing::Clock::time_point> until;  // of kWait
  Priority priority = Priority::kRequest;
};

struct EngineTallies {
  std::atomic<std::uint64_t> memory_hits{0}, disk_hits{0}, read_only_hits{0}, bundle_hits{0};
  std::atomic<std::uint64_t> remote_hits{0}, misses{0};
  std::atomic<std::uint64_t> memory_misses{0}, negative_hits{0}, waits{0};
  std::atomic<std::uint64_t> compiles{0}, compile_failures{0}, step_downs{0};
  std::atomic<std::uint64_t> loads{0}, launches{0}, copies{0};
  std::atomic<std::uint64_t> compile_timeouts{0}, cancelled{0}, frozen{0}, fallbacks{0};
  std::atomic<std::uint64_t> rejected{0}, unloads{0};
  CompileTimer compile_times;
};

struct Engine::State {
  explicit State(EngineOptions given);

  // Memory, then the store. A null `built` when neither has it.
  Obtained find(const Source& source, const std::string& request_key);
  // The compile of a kernel that find() has not found, one for all that ask at once. `label` names
  // it in log lines. REQUIRES: how.miss is not kError. COMPILE_TIMEOUT when `how.until` passes
  // first.
  Result<Obtained> obtain(const Source& source, const std::string& request_key,
                          const std::string& label, const MissOptions& how);
  // Names the engine's own policy where none is named.
  AcquireOptions settled(AcquireOptions options) const;
  // Loads at most once. REQUIRES: the engine has a device.
  Result<std::shared_ptr<LoadedKernel>> load(BuiltKernel& built, const std::string& entry,
                                             int shared_bytes);
  // The driver refused the image: its entry is taken out of the cache, once, so that the next
  // obtain() compiles anew.
  void reject(BuiltKernel& built, const std::string& request_key, const Status& why);
  // To be called before each launch: what is launched into a captured stream must stay loaded as
  // long as the graph may be replayed. Whether the stream captures.
  bool retain_if_captured(BuiltKernel& built, Stream stream);

  // The parts that the device needs, and its driver's version; without one 0 or what the options
  // say.
  Need need() const;
  int driver_version() const;

  // Null until backend() made it; lock-free.
  Backend* backend_now() const { return backend.load(std::memory_order_acquire); }
  Result<Backend*> make_backend();

  EngineOptions options;
  std::unique_ptr<Store> store;
  EngineTallies tallies;
  KernelMemory memory;
  std::atomic<Freeze> freeze{Freeze::kNone};
  AccessLog access_log;
  std::mutex nearest_mutex;
  std::map<std::string, std::string> nearest_texts;  // of name_nearest(), by request_key

 private:
  std::shared_ptr<BuiltKernel> in_store(const Source& source, const std::string& request_key,
                                        Asking asking = Asking::kRequest);
  Status may_compile(const std::string& request_key, const std::string& label);
  Landing::Outcome compile(const Source& source, const std::string& request_key,
                           const std::string& label, Interrupt& interrupt);
  Result<Artifact> run_compiler(const Source& source, const std::string& request_key,
                                const std::string& label, Interrupt& interrupt);
  Status check_compiler(const Source& source);
  NodeLock node_lock(const std::string& request_key, const std::function<bool()>& done);

  // The error of a compile that would fail again: of this process, and of any other as well.
  std::optional<Status> failed_here(const std::string& request_key);
  std::optional<Status> failed_before(const std::string& request_key);
  void remember(const std::string& request_key, const Status& failure);
  void keep_failure(const std::string& request_key, const Status& failure);

  Flight<BuiltKernel> flight_;
  std::mutex reject_mutex_;
  std::mutex failed_mutex_;
  std::map<std::string, Status> failed_;
  std::mutex backend_mutex_;
  std::unique_ptr<Backend> backend_owner_;
  std::atomic<Backend*> backend{nullptr};

 public:
  Landings landings;  // last: its threads use all of the above
};

inline void count(std::atomic<std::uint64_t>& tally) {
  tally.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace attnloom
