// SPDX-License-Identifier: Apache-2.0
// KernelMemory: the kernels of this process by request_key, loaded or not. A kernel that somebody
// holds stays; of the others the least recently used go when there are too many.
//
// Thread-safe. A kernel that was retained (a captured graph may launch it) is never let go.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cache/store.h"
#include "compile/artifact.h"
#include "engine/kernel_set.h"
#include "runtime/backend.h"

namespace attnloom {

// An artifact in this process. Immutable but for what is said below.
struct BuiltKernel {
  Artifact artifact;
  std::string kernel_key;
  Origin origin = Origin::kCompiled;
  std::mutex load_mutex;
  std::shared_ptr<LoadedKernel> loaded;  // made once; guarded by load_mutex
  std::atomic<bool> is_loaded{false};
  std::atomic<bool> retained{false};
  std::atomic<bool> rejected{false};  // the driver refused it
};

struct KernelMemoryLimits {
  int kernels = 1024;
  std::uint64_t bytes = std::uint64_t{256} << 20;  // of cubins, PTX and logs
};

class KernelMemory {
 public:
  explicit KernelMemory(KernelMemoryLimits limits) : limits_(limits) {}

  // Null where it is not, or lacks a part that is needed. Counts as a use.
  std::shared_ptr<BuiltKernel> find(const std::string& request_key, const Need& need);
  // The first one kept stays, unless it lacks a part that is needed.
  std::shared_ptr<BuiltKernel> keep(const std::string& request_key,
                                    std::shared_ptr<BuiltKernel> built, const Need& need);
  void forget(const std::string& request_key, const BuiltKernel& built);

  enum class Trim { kUnloadedOnly, kAll };
  // Lets go what nobody holds down to the limits; the number of kernels that were unloaded. kAll
  // calls the driver: not on a thread of ours, where it could break somebody's capture.
  int trim(Trim what);

  struct Figures {
    std::uint64_t kernels = 0;
    std::uint64_t bytes = 0;
  };
  Figures figures() const;

 private:
  struct Place {
    std::shared_ptr<BuiltKernel> built;
    std::uint64_t bytes = 0;
    std::list<std::string>::iterator use;
  };
  bool is_over() const {
    return places_.size() > static_cast<std::size_t>(limits_.kernels) || bytes_ > limits_.bytes;
  }
  void erase(std::map<std::string, Place>::iterator place);

  const KernelMemoryLimits limits_;
  mutable std::mutex mutex_;
  std::map<std::string, Place> places_;
  std::list<std::string> uses_;  // keys, the latest first
  std::uint64_t bytes_ = 0;
};

}  // namespace attnloom
