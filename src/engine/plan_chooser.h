// SPDX-License-Identifier: Apache-2.0
// PlanChooser: a plan, and the kernel of the set that will run it, by the policy about kernels that
// no layer holds.
//
// One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/status.h"
#include "engine/kernel_set.h"
#include "plan/plan.h"

namespace attnloom {

// Of what is copied, and of all device memory of a plan.
struct PlanRoom {
  std::size_t plan_bytes = 0;
  std::size_t workspace_bytes = 0;
  bool holds(const PlanLayout& layout) const {
    return layout.plan_bytes <= plan_bytes && layout.workspace_bytes <= workspace_bytes;
  }
};

class PlanChooser {
 public:
  // The engine's own policy where `policy` names none. `fixed`: the only kernel of the set to plan
  // with, -1 for all of them; nothing stands in for it.
  PlanChooser(std::shared_ptr<KernelSet> kernels, const PlanLimits& limits,
              const AcquireOptions& policy, int fixed = -1);

  // What any plan needs. Under kFallback that is more: a small tile may have to stand in for a
  // large one, and has many more items then. Errors: those of plan_layout.
  Result<PlanRoom> room() const;

  struct Choice {
    Plan plan;
    const AcquiredKernel* kernel = nullptr;
    std::vector<int> among;  // the kernels of the set that stood in; empty: none had to
  };
  // `storage` is that of make_plan. Once the kernels are settled it allocates what
  // make_plan does: nothing, where storage and batches before had room. Errors: those of make_plan
  // and KernelSet::acquire; PLAN_BOUND where the kernels as compiled need more than `bound`.
  Result<Choice> choose(const Workload& workload, std::uint64_t generation, Stream stream,
                        const PlanRoom& bound, std::vector<std::byte> storage);
  // What choose() would plan again for a choice `among` these kernels.
  Result<Plan> again(const std::vector<int>& among, const Workload& workload,
                     std::uint64_t generation) const;

 private:
  Result<Plan> plan_of(const std::vector<KernelChoice>& choices, const std::vector<int>& among,
                       const Workload& workload, std::uint64_t generation,
                       std::vector<std::byte> storage = {}) const;
  Status take_choices();
  Result<const AcquiredKernel*> acquire(int wanted, Stream stream);
  Result<Choice> stand_in(const Status& reason, const Workload& workload, std::uint64_t generation,
                          Stream stream, const PlanRoom& bound);
  Result<std::vector<int>> stand_ins_within(const PlanRoom& bound) const;
  void look_for_stand_ins(Stream stream);

  const std::shared_ptr<KernelSet> kernels_;
  const PlanLimits limits_;
  const AcquireOptions policy_;
  const std::vector<int> among_;  // the kernels to plan with; empty: all of the set
  // Those, as they were when last looked at, and what plans of them need. A kernel that is acquired
  // may come out with another tile; then they are taken anew.
  std::vector<KernelChoice> choices_;
  PlanLayout layout_;
  mutable PlanScratch scratch_;
  // Of kFallback, by kernel of the set: an error after which it is not asked for again in every
  // step; whether the layers were searched for it as a stand-in.
  std::vector<std::optional<Status>> failed_;
  std::vector<bool> searched_;
};

}  // namespace attnloom
