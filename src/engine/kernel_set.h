// SPDX-License-Identifier: Apache-2.0
// KernelSet: an opened spec, the kernels that it stands for, and those of them that were acquired
// so far.
//
// Thread-safe. Kernels are acquired lazily and at most once; what was acquired stays until the set
// is destroyed. A kernel that spills is replaced by the next smaller KV tile, so a choice is
// settled only when it is acquired and plans must be made with choices() as they are then.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "compile/artifact.h"
#include "engine/policy.h"
#include "render/source.h"
#include "runtime/backend.h"
#include "spec/parse.h"
#include "spec/tiles.h"

namespace attnloom {

class Engine;
class Landing;
struct BuiltKernel;

enum class Origin { kCompiled, kMemory, kDisk, kReadOnly, kBundle, kRemote };
// "compiled", "memory", "disk", "readonly", "bundle", "remote"
std::string_view origin_name(Origin origin);

// A kernel that was tried before the one in use and spilled registers.
struct SteppedDown {
  KernelChoice choice;
  std::string request_key;
  EntryFigures figures;
};

// A kernel ready to launch. Immutable.
struct AcquiredKernel {
  KernelChoice choice;  // the settled one
  std::string target;   // what it was compiled for; may be a base target of the device's major
  std::string entry;
  std::string request_key;
  std::string kernel_key;
  Origin origin = Origin::kMemory;
  EntryFigures figures;
  std::vector<SteppedDown> stepped_down;  // in the order tried
  std::shared_ptr<BuiltKernel> built;     // keeps the kernel in the engine's memory
  std::shared_ptr<const Artifact> artifact;
  std::shared_ptr<LoadedKernel> loaded;  // null without a device
};

class KernelSet {
 public:
  // Made by Engine::open. REQUIRES: spec.target is set and checked; choices = kernel_set(spec), not
  // empty.
  KernelSet(Engine& engine, ParsedSpec parsed, bool target_named,
            std::vector<KernelChoice> choices);
  ~KernelSet();
  KernelSet(const KernelSet&) = delete;
  KernelSet& operator=(const KernelSet&) = delete;

  Engine& engine() const;
  const Spec& spec() const;  // target filled in
  int size() const;
  // The choices, settled as far as they were acquired.
  std::vector<KernelChoice> choices() const;

  // The kernel if it was acquired, else null. Lock-free.
  const AcquiredKernel* acquired(int index) const;
  // Finds or compiles the kernel, and loads it where there is a device. A loaded kernel that the
  // driver refuses is compiled anew, once. CAPTURE_ACTIVE when that would be needed while `stream`
  // is being captured; nothing was then compiled or loaded. kFallback is kBlock here: PlanObject
  // knows what may stand in. The pointer lives as long as the set. Errors: NOT_CACHED;
  // COMPILE_TIMEOUT while the compile goes on; those of Toolchain::compile with the user's JSON
  // line, of Backend::load.
  Result<const AcquiredKernel*> acquire(int index, Stream stream = nullptr,
                                        const AcquireOptions& how = {});
  // Whether acquire() with Policy::kAsync has begun a compile of which it has not told the end yet.
  bool awaits(int index) const;
  // All kernels of the set.
  Status prepare();

  // Has the kernel compiled if no layer holds it; loads nothing. The landing of the compile to wait
  // for, and to start() again after, or null when the kernel is in `held`, ready to be acquired.
  // `request_key` names the landing.
  struct Started {
    std::shared_ptr<Landing> landing;
    std::string request_key;
    std::shared_ptr<BuiltKernel> held;
  };
  Result<Started> start(int index, Priority priority);
  // A compile's error as acquire() would have returned it.
  Status with_user_lines(Status error) const;
  // What acquire() would find without compiling or loading; settles nothing. NOT_CACHED where no
  // layer holds it, and `missed` (may be null) is then the program that is missing.
  Result<AcquiredKernel> look_up(int index, Source* missed = nullptr) const;

  // The program and key of a kernel as currently chosen. Needs neither compiler nor device.
  Result<Source> source(int index) const;
  Result<std::string> request_key(int index) const;
  // As alm_kernel_describe documents.
  Json describe() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace attnloom
