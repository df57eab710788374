// SPDX-License-Identifier: Apache-2.0
#include "engine/plan_chooser.h"

#include <algorithm>
#include <string>
#include <utility>

#include "engine/engine_state.h"

namespace attnloom {
namespace {

// A choice steps down at most once per KV tile, and each settles one more kernel of the set.
constexpr int kMostReplans = 16;

std::vector<KernelChoice> some_of(const std::vector<int>& among,
                                  const std::vector<KernelChoice>& all) {
  if (among.empty()) return all;
  std::vector<KernelChoice> some;
  for (const int index : among) some.push_back(all[index]);
  return some;
}

// Where one kernel is fixed nothing may stand in for it.
AcquireOptions policy_for(AcquireOptions settled, int fixed) {
  if (fixed >= 0 && settled.policy == Policy::kFallback) settled.policy = Policy::kBlock;
  return settled;
}

}  // namespace

PlanChooser::PlanChooser(std::shared_ptr<KernelSet> kernels, const PlanLimits& limits,
                         const AcquireOptions& policy, int fixed)
    : kernels_(std::move(kernels)),
      limits_(limits),
      policy_(policy_for(kernels_->engine().state().settled(policy), fixed)),
      among_(fixed < 0 ? std::vector<int>() : std::vector<int>{fixed}),
      failed_(kernels_->size()),
      searched_(kernels_->size()) {}

Result<PlanRoom> PlanChooser::room() const {
  const std::vector<KernelChoice> all = some_of(among_, kernels_->choices());
  ATTNLOOM_TRY(const PlanLayout layout, plan_layout(kernels_->spec(), all, limits_));
  PlanRoom room{layout.plan_bytes, layout.workspace_bytes};
  if (policy_.policy != Policy::kFallback) return room;
  for (const KernelChoice& alone : all) {
    ATTNLOOM_TRY(const PlanLayout one, plan_layout(kernels_->spec(), {alone}, limits_));
    room.plan_bytes = std::max(room.plan_bytes, one.plan_bytes);
    room.workspace_bytes = std::max(room.workspace_bytes, one.workspace_bytes);
  }
  return room;
}

// `choices`: of the kernels `among`, or of all.
Result<Plan> PlanChooser::plan_of(const std::vector<KernelChoice>& choices,
                                  const std::vector<int>& among, const Workload& workload,
                                  std::uint64_t generation, std::vector<std::byte> storage) const {
  ATTNLOOM_TRY(Plan plan, make_plan(kernels_->spec(), choices, limits_, workload, generation, {},
                                    std::move(storage), &scratch_));
  if (!among.empty()) plan.kernel = among[plan.kernel];
  return plan;
}

Result<Plan> PlanChooser::again(const std::vector<int>& among, const Workload& workload,
                                std::uint64_t generation) const {
  if (among.empty()) return plan_of(choices_, among_, workload, generation);
  return plan_of(some_of(among, kernels_->choices()), among, workload, generation);
}

Status PlanChooser::take_choices() {
  choices_ = some_of(among_, kernels_->choices());
  ATTNLOOM_TRY(layout_, plan_layout(kernels_->spec(), choices_, limits_));
  return ok_status();
}

// The plan chooses a kernel, and acquiring that kernel may change its tiles: plan again until the
// two agree.
Result<PlanChooser::Choice> PlanChooser::choose(const Workload& workload, std::uint64_t generation,
                                                Stream stream, const PlanRoom& bound,
                                                std::vector<std::byte> storage) {
  if (choices_.empty()) ATTNLOOM_CHECK(take_choices());
  for (int i = 0; i < kMostReplans; ++i) {
    Choice choice;
    ATTNLOOM_TRY(choice.plan,
                 plan_of(choices_, among_, workload, generation, std::exchange(storage, {})));
    const KernelChoice& planned = choices_[among_.empty() ? choice.plan.kernel : 0];
    Result<const AcquiredKernel*> kernel = acquire(choice.plan.kernel, stream);
    if (!kernel.ok()) return stand_in(kernel.status(), workload, generation, stream, bound);
    choice.kernel = kernel.value();
    if (choice.kernel->choice != planned) {
      ATTNLOOM_CHECK(take_choices());
      continue;
    }
    // Kernels that stepped down have other tiles and so another layout; the memory was sized before
    // that was known.
    if (!bound.holds(layout_)) {
      return make_error(Code::kPlanBound, "workspace_bytes",
                        std::to_string(layout_.workspace_bytes) +
                            " bytes are needed by the kernels as compiled; " +
                            std::to_string(bound.workspace_bytes) + " are bound",
                        "call alm_kernel_prepare before alm_plan_create");
    }
    return choice;
  }
  return make_error(Code::kInternal, "", "the choice of kernels did not settle");
}

// Under kFallback without waiting, as long as something may stand in.
Result<const AcquiredKernel*> PlanChooser::acquire(int wanted, Stream stream) {
  if (const AcquiredKernel* kernel = kernels_->acquired(wanted)) return kernel;
  AcquireOptions how = policy_;
  if (how.policy != Policy::kFallback) return kernels_->acquire(wanted, stream, how);
  if (failed_[wanted]) return *failed_[wanted];
  how.policy = Policy::kAsync;
  Result<const AcquiredKernel*> kernel = kernels_->acquire(wanted, stream, how);
  if (kernel.ok()) return kernel;
  if (kernels_->awaits(wanted)) {
    look_for_stand_ins(stream);
    for (int i = 0; i < kernels_->size(); ++i)
      if (kernels_->acquired(i) != nullptr) return kernel;
    how.policy = Policy::kBlock;
    kernel = kernels_->acquire(wanted, stream, how);
    if (kernel.ok() || kernels_->awaits(wanted)) return kernel;
  }
  if (kernel.status().code == Code::kCaptureActive) return kernel;
  failed_[wanted] = kernel.status();
  kernels_->engine().log().warn(
      "plans go on with another kernel, if there is one, until "
      "alm_kernel_prepare succeeds: " +
      kernel.status().to_string());
  return kernel;
}

void PlanChooser::look_for_stand_ins(Stream stream) {
  for (int i = 0; i < kernels_->size(); ++i) {
    if (kernels_->acquired(i) != nullptr || searched_[i]) continue;
    searched_[i] = true;
    // Not being there is no error here.
    (void)kernels_->acquire(i, stream, {.policy = Policy::kNever});
  }
}

// The kernels that are there, or as much of them as the plan's memory has room for.
Result<std::vector<int>> PlanChooser::stand_ins_within(const PlanRoom& bound) const {
  std::vector<int> there;
  for (int i = 0; i < kernels_->size(); ++i)
    if (kernels_->acquired(i) != nullptr) there.push_back(i);
  const std::vector<KernelChoice> all = kernels_->choices();
  const auto fits = [&](const std::vector<int>& among) {
    const Result<PlanLayout> layout = plan_layout(kernels_->spec(), some_of(among, all), limits_);
    return layout.ok() && bound.holds(*layout);
  };
  if (there.empty() || fits(there)) return there;
  // Large tiles first: they make the fewest items.
  for (auto one = there.rbegin(); one != there.rend(); ++one)
    if (fits({*one})) return std::vector<int>{*one};
  return std::vector<int>();
}

// Any class of a set serves any batch, at less speed.
Result<PlanChooser::Choice> PlanChooser::stand_in(const Status& reason, const Workload& workload,
                                                  std::uint64_t generation, Stream stream,
                                                  const PlanRoom& bound) {
  if (policy_.policy != Policy::kFallback) return reason;
  look_for_stand_ins(stream);
  Choice choice;
  ATTNLOOM_TRY(choice.among, stand_ins_within(bound));
  if (choice.among.empty()) return reason;
  ATTNLOOM_TRY(choice.plan, plan_of(some_of(choice.among, kernels_->choices()), choice.among,
                                    workload, generation));
  choice.kernel = kernels_->acquired(choice.plan.kernel);
  count(kernels_->engine().state().tallies.fallbacks);
  return choice;
}

}  // namespace attnloom
