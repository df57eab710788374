// SPDX-License-Identifier: Apache-2.0
// What Python holds: a context, kernels of it and plans of those, each keeping alive what it was
// made from. The GIL is released while the library works.
//
// Threads: contexts and kernels from any number; calls of one plan take turns.
#pragma once

#include <nanobind/nanobind.h>

#include <attnloom/attnloom.hpp>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace attnloom::python {

namespace nb = nanobind;

struct ContextOptions {
  int device = 0;
  std::string cache_dir;  // "": the library's default, here and below
  std::string read_only_caches;
  std::string nvrtc;
  std::string python_paths;
  std::string simulator_profile;
  std::uint64_t simulator_seed = 0;
  int jit = 0;
};

class ContextObject {
 public:
  explicit ContextObject(const ContextOptions& options);

  alm_context* get() const { return context_.get(); }
  Context& context() { return context_; }
  // Opens the device, where the choice was left to the library. From any thread.
  bool is_simulated();

 private:
  Context context_;
  int device_;
  std::once_flag asked_;  // where the choice was left to the library
  bool simulated_ = false;
};

class KernelObject {
 public:
  KernelObject(std::shared_ptr<ContextObject> context, const std::string& spec_json);

  Kernel& kernel() { return kernel_; }
  ContextObject& context() { return *context_; }

 private:
  std::shared_ptr<ContextObject> context_;
  Kernel kernel_;
};

// Kernels on their way. Cancels what is not over when it ends, before what it was made from.
class PendingObject {
 public:
  PendingObject(std::shared_ptr<KernelObject> kernel, bool prewarm);

  // False while it is not over after `timeout_ms`; negative: no limit.
  bool wait(std::int64_t timeout_ms);
  void cancel() { pending_.cancel(); }

 private:
  std::shared_ptr<KernelObject> kernel_;
  Pending pending_;
};

class PlanObject {
 public:
  // REQUIRES: every field of alm_plan_limits that Attention knows.
  PlanObject(std::shared_ptr<KernelObject> kernel, const nb::dict& limits);
  ~PlanObject();

  void update(const nb::dict& workload, std::uintptr_t stream);
  void check(const nb::dict& workload, std::uintptr_t stream);
  // q, k, v, out, lse, page_indices, block_indices, custom_mask, k_scale, v_scale; or None.
  void run(const nb::tuple& tensors, const nb::dict& params, nb::handle stream);
  std::string describe();

 private:
  PlanObject(std::shared_ptr<KernelObject> kernel, const alm_plan_limits& limits);

  std::shared_ptr<KernelObject> kernel_;
  std::mutex mutex_;
  // The copy from staging may be under way: freeing the workspace waits for the device, so it goes
  // first, and the staging memory last.
  std::optional<HostMemory> staging_;
  std::optional<Memory> workspace_;
  Plan plan_;
};

}  // namespace attnloom::python
