// SPDX-License-Identifier: Apache-2.0
// PlanObject: one plan's place in device memory, renewed every step. It owns the layout, the
// generation counter and the two events that guard the two halves of the caller's staging memory.
//
// One thread at a time. The KernelSet and the caller's workspace and staging outlive it. One
// workspace serves one stream at a time. After bind() it allocates no device memory; run() takes no
// lock, allocates nothing and reads no environment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/json.h"
#include "base/status.h"
#include "engine/kernel_set.h"
#include "plan/plan.h"
#include "runtime/launch.h"

namespace attnloom {

struct PlanOptions {
  // With kFallback an update may choose another kernel of the set than without, and a later one the
  // kernel that is wanted; with one fixed kernel it is kBlock.
  AcquireOptions policy;
  // For runs that are captured: one kernel for all updates (`kernel`, else that of fixed_kernel),
  // acquired when the plan is made, so that no later call compiles or loads.
  bool graph = false;
  int kernel = -1;  // of the set: the only one to plan with
};

class PlanObject {
 public:
  // `limits.sm_count` 0: the device's. Without a device that of the target's simulator profile.
  // Errors: those of plan_layout; ARGUMENT_INVALID for more SMs or CTAs than there are, or a kernel
  // that the set does not have; with `graph` those of KernelSet::acquire.
  static Result<std::unique_ptr<PlanObject>> create(std::shared_ptr<KernelSet> kernels,
                                                    PlanLimits limits,
                                                    const PlanOptions& options = {});
  ~PlanObject();
  PlanObject(const PlanObject&) = delete;
  PlanObject& operator=(const PlanObject&) = delete;

  std::size_t workspace_bytes() const;
  std::size_t staging_bytes() const;
  // Once, before the first update. Both at least of the sizes above; the workspace 256-byte
  // aligned.
  Status bind(DeviceAddress workspace, std::size_t workspace_bytes, void* staging,
              std::size_t staging_bytes);

  // Plans and, where there is a device, starts one asynchronous copy on `stream`. On an error the
  // last good plan stays. A workload without heads takes those of the limits. Errors: those of
  // make_plan and KernelSet::acquire; CAPTURE_ACTIVE while `stream` captures, because the copy
  // would be frozen into the graph; those of CapturedRuns::check.
  Status update(const Workload& workload, Stream stream);

  // Launches. Fills in tensors.workspace. PLAN_STALE before the first update; TENSOR_INVALID.
  Status run(AttentionTensors& tensors, Stream stream);

  // For debugging; waits for the stream. PLAN_STALE when the device holds another plan than the
  // last update's, or when planning `workload` would give another one.
  Status check(const Workload& workload, Stream stream);

  const Plan* plan() const;  // the last update's; null before it
  std::uint64_t generation() const;
  KernelSet& kernels() const;
  Json describe() const;

 private:
  struct State;
  explicit PlanObject(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace attnloom
