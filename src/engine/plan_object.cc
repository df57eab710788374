// SPDX-License-Identifier: Apache-2.0
#include "engine/plan_object.h"

#include <cstring>
#include <optional>

#include "engine/captured.h"
#include "engine/engine.h"
#include "engine/engine_state.h"
#include "engine/plan_chooser.h"
#include "plan/invariant.h"
#include "plan/layout.h"
#include "plan/select.h"
#include "runtime/mapped_launch.h"
#include "sim/device.h"
#include "spec/wgmma_tiles.h"

namespace attnloom {
namespace {

constexpr std::size_t kAlignment = 256;  // bytes, of the workspace and of each staging half

// Bytes. The plan's tables are laid out on borders of 16, which every malloc keeps; an address in
// between was computed wrongly.
constexpr std::size_t kStagingAlignment = 16;

Status argument_range(const char* name, std::int64_t most, std::int64_t given) {
  return make_error(Code::kArgumentInvalid, name,
                    "wanted 0 to " + std::to_string(most) + ", given " + std::to_string(given),
                    "0 leaves the choice to the plan");
}

std::size_t round_up(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

Result<int> sm_count_for(KernelSet& kernels) {
  if (kernels.engine().has_device()) {
    ATTNLOOM_TRY(Backend * device, kernels.engine().backend());
    return device->device().sm_count;
  }
  for (const sim::Profile& profile : sim::profiles())
    if (profile.target == kernels.spec().target->name()) return profile.sm_count;
  return sim::profiles().front().sm_count;
}

// Fills in the SMs where none are named, and refuses more than there are: they would be another
// plan than the one that was asked for.
Status settle_limits(KernelSet& kernels, int fixed, PlanLimits& limits) {
  ATTNLOOM_TRY(const int sm_count, sm_count_for(kernels));
  if (limits.sm_count == 0) limits.sm_count = sm_count;
  // Without a device any number may be planned for.
  if (limits.sm_count < 0 || (kernels.engine().has_device() && limits.sm_count > sm_count))
    return argument_range("limits.sm_budget", sm_count, limits.sm_count);
  if (limits.max_ctas == 0) return ok_status();
  PlanLimits resident = limits;
  resident.max_ctas = 0;
  const std::vector<KernelChoice> choices = kernels.choices();
  std::int64_t most = 0;
  for (int k = 0; k < std::ssize(choices); ++k)
    if (fixed < 0 || fixed == k) most = std::max(most, cta_count(choices[k], resident));
  if (limits.max_ctas < 0 || limits.max_ctas > most)
    return argument_range("limits.max_ctas", most, limits.max_ctas);
  return ok_status();
}

// The one kernel of the set that the plan is made for, -1 where each batch chooses.
Result<int> kernel_to_fix(const KernelSet& kernels, const PlanLimits& limits,
                          const PlanOptions& options) {
  if (kernels.spec().kernel != KernelKind::kAttention) return -1;  // plan_layout refuses it
  if (options.kernel < -1 || options.kernel >= kernels.size())
    return argument_range("limits.kernel", kernels.size(), std::int64_t{options.kernel} + 1);
  if (options.kernel >= 0) return options.kernel;
  if (options.graph) return fixed_kernel(kernels.spec(), kernels.choices(), limits);
  return limits.batch_invariant ? invariant_kernel(kernels.choices()) : -1;
}

Status alignment_error(const char* name, const char* what, std::uint64_t address,
                       std::size_t alignment) {
  const std::string given =
      address == 0 ? "null" : "remainder " + std::to_string(address % alignment);
  return make_error(Code::kArgumentInvalid, name,
                    std::string("must be a ") + what + " address that is a multiple of " +
                        std::to_string(alignment) + " bytes, given " + given);
}

Status bound_error(const char* name, std::size_t needed, std::size_t given) {
  return make_error(
      Code::kPlanBound, name,
      std::to_string(needed) + " bytes are needed; " + std::to_string(given) + " were given",
      "pass memory of the sizes that the plan reports");
}

}  // namespace

struct PlanObject::State {
  std::shared_ptr<KernelSet> kernels;
  Backend* device = nullptr;  // null without a device
  PlanLimits limits;
  std::optional<PlanChooser> chooser;  // from the start
  PlanRoom room;

  DeviceAddress workspace = 0;
  std::size_t workspace_bytes = 0;
  std::byte* staging = nullptr;
  std::size_t half_bytes = 0;
  std::unique_ptr<Event> copied[2];  // the copy out of each half

  std::uint64_t generation = 0;
  bool updated = false;
  Plan plan;
  std::vector<std::byte> spare;  // the block before the last: the next one takes its memory
  const AcquiredKernel* kernel = nullptr;
  std::vector<int> among;  // the kernels that stood in for the last plan; empty: none had to
  CapturedRuns captured;
  int q_heads = 0;  // of the last update
  int kv_heads = 0;
  std::int64_t pool_pages = 0;

  // Of an update, while it lasts (its arrays are the caller's); kept so that its memory is reused.
  Workload workload;
  void add_heads(Workload& given) const;
  void make_room_in_spare();
  Status copy(const Plan& next_plan, std::uint64_t next, Stream stream);
  Status launch(const loom::AttentionArgs& args, const AttentionTensors& tensors,
                const LaunchShape& shape, Stream stream);
};

PlanObject::PlanObject(std::unique_ptr<State> state) : state_(std::move(state)) {}
PlanObject::~PlanObject() = default;

Result<std::unique_ptr<PlanObject>> PlanObject::create(std::shared_ptr<KernelSet> kernels,
                                                       PlanLimits limits,
                                                       const PlanOptions& options) {
  auto state = std::make_unique<State>();
  ATTNLOOM_TRY(const int fixed, kernel_to_fix(*kernels, limits, options));
  ATTNLOOM_CHECK(settle_limits(*kernels, fixed, limits));
  state->chooser.emplace(kernels, limits, options.policy, fixed);
  ATTNLOOM_TRY(state->room, state->chooser->room());
  if (options.graph) {
    ATTNLOOM_CHECK(kernels->acquire(fixed, nullptr, options.policy).status());
    ATTNLOOM_TRY(state->room, state->chooser->room());  // its tiles may have stepped down
  }
  if (kernels->engine().has_device()) {
    ATTNLOOM_TRY(state->device, kernels->engine().backend());
    for (std::unique_ptr<Event>& event : state->copied) {
      ATTNLOOM_TRY(event, state->device->make_event());
    }
  }
  state->kernels = std::move(kernels);
  state->limits = limits;
  state->half_bytes = round_up(state->room.plan_bytes);
  return std::unique_ptr<PlanObject>(new PlanObject(std::move(state)));
}

std::size_t PlanObject::workspace_bytes() const {
  return round_up(state_->room.workspace_bytes);
}
std::size_t PlanObject::staging_bytes() const {
  return 2 * state_->half_bytes;
}
const Plan* PlanObject::plan() const {
  return state_->updated ? &state_->plan : nullptr;
}
std::uint64_t PlanObject::generation() const {
  return state_->generation;
}
KernelSet& PlanObject::kernels() const {
  return *state_->kernels;
}

Status PlanObject::bind(DeviceAddress workspace, std::size_t workspace_bytes, void* staging,
                        std::size_t staging_bytes) {
  if (state_->workspace != 0)
    return make_error(Code::kArgumentInvalid, "workspace", "the plan has its memory already",
                      "make another plan");
  if (workspace == 0 || workspace % kAlignment != 0)
    return alignment_error("workspace", "device", workspace, kAlignment);
  const auto host = reinterpret_cast<std::uintptr_t>(staging);
  if (host == 0 || host % kStagingAlignment != 0)
    return alignment_error("staging", "host", host, kStagingAlignment);
  if (workspace_bytes < this->workspace_bytes())
    return bound_error("workspace_bytes", this->workspace_bytes(), workspace_bytes);
  if (staging_bytes < this->staging_bytes())
    return bound_error("staging_bytes", this->staging_bytes(), staging_bytes);
  state_->workspace = workspace;
  state_->workspace_bytes = workspace_bytes;
  state_->staging = static_cast<std::byte*>(staging);
  return ok_status();
}

Status PlanObject::State::copy(const Plan& next_plan, std::uint64_t next, Stream stream) {
  const int half = static_cast<int>(next % 2);
  ATTNLOOM_CHECK(device->wait(*copied[half]));
  std::byte* place = staging + half * half_bytes;
  std::memcpy(place, next_plan.block.data(), next_plan.block.size());
  ATTNLOOM_CHECK(device->copy_in_async(workspace, {place, next_plan.block.size()}, stream));
  count(kernels->engine().state().tallies.copies);
  return device->record(*copied[half], stream);
}

Status PlanObject::State::launch(const loom::AttentionArgs& args, const AttentionTensors& tensors,
                                 const LaunchShape& shape, Stream stream) {
  const KernelChoice& choice = kernel->choice;
  if (choice.family != kWgmmaFamily)
    return device->launch(*kernel->loaded, shape, std::as_bytes(std::span(&args, 1)), stream);
  loom::MappedAttentionArgs mapped = {};
  mapped.attention = args;
  ATTNLOOM_CHECK(add_maps(*device, kernels->spec(), choice.classes.front(), tensors, mapped));
  return device->launch(*kernel->loaded, shape, std::as_bytes(std::span(&mapped, 1)), stream);
}

void PlanObject::State::add_heads(Workload& given) const {
  if (given.q_heads == 0) given.q_heads = limits.q_heads;
  if (given.kv_heads == 0) given.kv_heads = limits.kv_heads;
}

// Two blocks take turns: whichever update is the first of its size pays for both, and the next one
// for none.
void PlanObject::State::make_room_in_spare() {
  if (spare.capacity() >= plan.block.size()) return;
  spare.clear();
  spare.reserve(plan.block.capacity());
}

Status PlanObject::update(const Workload& given, Stream stream) {
  State& state = *state_;
  state.workload = given;
  state.add_heads(state.workload);
  const Workload& workload = state.workload;
  if (state.device) {
    if (state.workspace == 0)
      return make_error(Code::kArgumentInvalid, "workspace", "the plan has no memory yet",
                        "call alm_plan_bind first");
    ATTNLOOM_TRY(const bool capturing, state.device->is_capturing(stream));
    if (capturing) {
      return make_error(Code::kCaptureActive, "",
                        "a plan cannot be updated while its stream is being captured",
                        "update before the capture begins, and between replays");
    }
  }
  const std::uint64_t next = state.generation + 1;
  // Without a device nothing is bound.
  const PlanRoom bound = state.device ? PlanRoom{state.half_bytes, state.workspace_bytes}
                                      : PlanRoom{SIZE_MAX, SIZE_MAX};
  ATTNLOOM_TRY(PlanChooser::Choice chosen,
               state.chooser->choose(workload, next, stream, bound, std::move(state.spare)));
  ATTNLOOM_CHECK(state.captured.check(chosen.plan, workload.pool_pages));
  if (state.device) ATTNLOOM_CHECK(state.copy(chosen.plan, next, stream));
  state.spare = std::move(state.plan.block);
  state.plan = std::move(chosen.plan);
  state.make_room_in_spare();
  state.kernel = chosen.kernel;
  state.among = std::move(chosen.among);
  state.generation = next;
  state.q_heads = workload.q_heads;
  state.kv_heads = workload.kv_heads;
  state.pool_pages = workload.pool_pages;
  state.updated = true;
  return ok_status();
}

Status PlanObject::run(AttentionTensors& tensors, Stream stream) {
  State& state = *state_;
  if (!state.device) return state.kernels->engine().backend().status();
  if (!state.updated)
    return make_error(Code::kPlanStale, "", "the plan was not updated yet",
                      "call alm_plan_update before alm_run");
  tensors.workspace = state.workspace;
  ATTNLOOM_TRY(const loom::AttentionArgs args,
               attention_args(state.kernels->spec(), state.plan, state.q_heads, state.kv_heads,
                              state.pool_pages, tensors));
  LaunchShape shape;
  shape.grid = static_cast<unsigned>(state.plan.grid);
  shape.block = static_cast<unsigned>(state.kernel->choice.threads);
  shape.shared_bytes = static_cast<unsigned>(state.kernel->choice.shared_bytes);
  if (shape.grid == 0) return ok_status();
  if (state.kernels->engine().state().retain_if_captured(*state.kernel->built, stream))
    state.captured.add(state.kernels->spec(), state.plan.kernel, tensors);
  ATTNLOOM_CHECK(state.launch(args, tensors, shape, stream));
  count(state.kernels->engine().state().tallies.launches);
  return ok_status();
}

Status PlanObject::check(const Workload& given, Stream stream) {
  State& state = *state_;
  Workload workload = given;
  state.add_heads(workload);
  if (!state.updated) return make_error(Code::kPlanStale, "", "the plan was not updated yet");
  ATTNLOOM_TRY(const Plan again, state.chooser->again(state.among, workload, state.generation));
  if (again.kernel != state.plan.kernel || again.block != state.plan.block) {
    return make_error(Code::kPlanStale, "", "the lengths changed after the last update of the plan",
                      "call alm_plan_update before the next run or replay");
  }
  if (!state.device) return ok_status();
  ATTNLOOM_CHECK(state.device->synchronize(stream));
  std::vector<std::byte> held(state.plan.block.size());
  ATTNLOOM_CHECK(state.device->copy_out(held, state.workspace));
  // All of it: another plan object may have come to the same generation. Counters are back at zero.
  if (held == state.plan.block) return ok_status();
  loom::PlanHeader header = {};
  std::memcpy(&header, held.data(), sizeof(header));
  return make_error(Code::kPlanStale, "workspace",
                    "holds another plan, of generation " + std::to_string(header.generation) +
                        "; the last update is generation " + std::to_string(state.generation),
                    "one workspace serves one plan and one stream at a time");
}

Json PlanObject::describe() const {
  if (!state_->updated) return nullptr;
  Json described = plan_to_json(state_->kernels->spec(), state_->kernels->choices(), state_->plan);
  described["generation"] = state_->generation;
  return described;
}

}  // namespace attnloom
