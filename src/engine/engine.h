// SPDX-License-Identifier: Apache-2.0
// Engine: Spec -> KernelSet, and from a kernel of the set to something loaded: memory, then the
// store's layers, then one compile. It owns the device, the compiler and the cache; setup.h makes
// one from options and environment.
//
// Thread-safe. Outlives every KernelSet and PlanObject made from it. The device is touched at the
// first call that needs one, never earlier: a process may open, render, compile and look up with an
// explicit target, fork, and use the device in the child.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/files.h"
#include "base/json.h"
#include "base/status.h"
#include "cache/store.h"
#include "compile/toolchain.h"
#include "engine/kernel_set.h"
#include "engine/log.h"
#include "engine/policy.h"
#include "engine/statistics.h"
#include "runtime/backend.h"
#include "spec/parse.h"

namespace attnloom {

struct EngineOptions {
  // Called once, at the first call that needs a device. Empty: compile, cache and plan only.
  std::function<Result<std::unique_ptr<Backend>>()> make_backend;
  std::unique_ptr<Toolchain> toolchain;
  // Which spec a program comes from, before it is compiled; may be empty.
  std::function<void(const std::string& request_key, const Spec& spec)> before_compile;
  std::unique_ptr<FileSystem> files;
  StoreOptions store;  // `warn` is filled in by the engine
  bool jit = true;     // false: a kernel that no layer holds is NOT_CACHED
  // Without a device: the least driver, as cuDriverGetVersion counts, that is to load what is found
  // or compiled. 0: any.
  int least_driver = 0;
  std::string lock_directory;  // node-local; "" = one compile per process only
  std::chrono::milliseconds lock_patience{30'000};
  // After this long a waiter is told who holds the lock, so that nobody kills a process that only
  // waits.
  std::chrono::milliseconds say_who_holds{5'000};
  bool jit_warns = false;          // a kernel that no layer holds is compiled with a warning
  Policy policy = Policy::kBlock;  // of calls that name none; not kDefault
  std::chrono::milliseconds policy_timeout{0};  // of kBlock and kFallback; 0: none
  std::chrono::milliseconds compile_timeout{60'000};
  int jobs = 0;                 // compiles at a time; 0: by cores and free memory (compile_limit.h)
  int most_loaded_kernels = 0;  // 0: those of KernelMemoryLimits
  std::uint64_t most_loaded_bytes = 0;
  Log log;
  std::string access_log;          // file; "" = none
  Json settings = Json::object();  // shown by describe() as it is
};

class Engine {
 public:
  explicit Engine(EngineOptions options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Parses, checks and chooses kernels; compiles and loads nothing. Without a target in the spec
  // the device's own is taken. Errors: those of parse_spec, check_spec and kernel_set; SPEC_INVALID
  // at $.target without target and device; ARCH_MISMATCH for a target that the device cannot load.
  Result<std::shared_ptr<KernelSet>> open(std::string_view spec_json);
  Result<std::shared_ptr<KernelSet>> open(const ParsedSpec& parsed);

  bool has_device() const;
  // Makes the device at the first call. NO_DEVICE where the engine has none.
  Result<Backend*> backend();

  // From now on a compile that would begin warns or is NOT_CACHED, naming the spec; cached kernels
  // are found and loaded as before. kNone: no longer.
  void freeze(Freeze how);

  Store& store();
  const Log& log() const;
  EngineCounters counters() const;
  Statistics statistics() const;
  // Device (if it was touched), settings, cache root and its refusal, counters.
  Json describe() const;

  struct State;  // engine_state.h, for the files of this room
  State& state() { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

}  // namespace attnloom
