// SPDX-License-Identifier: Apache-2.0
#include "engine/kernel_set.h"

#include <atomic>
#include <mutex>

#include "engine/engine_state.h"
#include "engine/explain.h"
#include "engine/targets.h"
#include "engine/walk.h"
#include "render/render.h"

namespace attnloom {

struct KernelSet::State {
  // A slot's kernel is set once and never replaced, so the bare pointer may be read without a lock.
  struct Slot {
    KernelChoice choice;                  // guarded by mutex
    std::shared_ptr<Landing> in_the_air;  // of Policy::kAsync; guarded by mutex
    std::unique_ptr<const AcquiredKernel> owner;
    std::atomic<const AcquiredKernel*> kernel{nullptr};
  };

  State(Engine& engine, ParsedSpec parsed, bool target_named, std::vector<KernelChoice> choices)
      : engine(engine),
        parsed(std::move(parsed)),
        target_named(target_named),
        slots(choices.size()) {
    for (std::size_t i = 0; i < choices.size(); ++i) slots[i].choice = std::move(choices[i]);
  }

  Status check_index(int index) const {
    if (index >= 0 && index < static_cast<int>(slots.size())) return ok_status();
    return make_error(
        Code::kInternal, "",
        "kernel " + std::to_string(index) + " of a set of " + std::to_string(slots.size()));
  }
  KernelChoice choice(int index) const {
    const std::lock_guard lock(mutex);
    return slots[index].choice;
  }
  Status check_target();
  Status check_not_capturing(Stream stream);
  WalkRequest request(int index, bool try_other_targets, const MissOptions& how) const;
  MissOptions miss_options(const AcquireOptions& how) const;
  Status check_in_the_air(int index);
  Result<std::unique_ptr<AcquiredKernel>> find_and_load(int index, bool try_other_targets,
                                                        const MissOptions& how, bool healed);
  Result<WalkResult> find(int index, bool try_other_targets, const MissOptions& how);
  const AcquiredKernel* settle(int index, std::unique_ptr<AcquiredKernel> kernel);

  Engine& engine;
  const ParsedSpec parsed;
  const bool target_named;
  mutable std::mutex mutex;
  std::vector<Slot> slots;
};

KernelSet::KernelSet(Engine& engine, ParsedSpec parsed, bool target_named,
                     std::vector<KernelChoice> choices)
    : state_(std::make_unique<State>(engine, std::move(parsed), target_named, std::move(choices))) {
}
KernelSet::~KernelSet() = default;

Engine& KernelSet::engine() const {
  return state_->engine;
}
const Spec& KernelSet::spec() const {
  return state_->parsed.spec;
}
int KernelSet::size() const {
  return static_cast<int>(state_->slots.size());
}

std::vector<KernelChoice> KernelSet::choices() const {
  const std::lock_guard lock(state_->mutex);
  std::vector<KernelChoice> choices;
  for (const State::Slot& slot : state_->slots) choices.push_back(slot.choice);
  return choices;
}

const AcquiredKernel* KernelSet::acquired(int index) const {
  return state_->slots[index].kernel.load(std::memory_order_acquire);
}

// What must be known before a kernel is compiled or loaded for the engine's device.
Status KernelSet::State::check_target() {
  if (!engine.has_device()) return ok_status();
  ATTNLOOM_TRY(Backend * device, engine.backend());
  const Target target = *parsed.spec.target;
  if (device_accepts(device->device(), target)) return ok_status();
  return make_error(Code::kArchMismatch, "$.target",
                    "kernels for " + target.name() + " cannot run on " + device->device().name +
                        " (" + device->device().target.name() + ")",
                    "leave the target out, or name the device's own");
}

Status KernelSet::State::check_not_capturing(Stream stream) {
  if (!engine.has_device()) return ok_status();
  ATTNLOOM_TRY(Backend * device, engine.backend());
  ATTNLOOM_TRY(const bool capturing, device->is_capturing(stream));
  if (!capturing) return ok_status();
  return make_error(Code::kCaptureActive, "",
                    "a kernel is not loaded yet and the stream is being captured",
                    "call alm_kernel_prepare before the capture begins");
}

WalkRequest KernelSet::State::request(int index, bool try_other_targets,
                                      const MissOptions& how) const {
  WalkRequest request;
  request.spec = &parsed.spec;
  request.field_lines = &parsed.field_lines;
  request.choice = choice(index);
  request.index = index;
  request.try_other_targets = try_other_targets;
  request.how = how;
  if (!engine.state().options.jit) request.how.miss = Miss::kError;
  return request;
}

MissOptions KernelSet::State::miss_options(const AcquireOptions& how) const {
  MissOptions options;
  options.priority = how.priority;
  options.miss = how.policy == Policy::kNever   ? Miss::kError
                 : how.policy == Policy::kAsync ? Miss::kStart
                                                : Miss::kWait;
  if (how.timeout.count() > 0) options.until = Landing::Clock::now() + how.timeout;
  return options;
}

// A caller that asks every step pays for a look at the landing, not for a walk through the layers.
Status KernelSet::State::check_in_the_air(int index) {
  const std::lock_guard lock(mutex);
  std::shared_ptr<Landing>& landing = slots[index].in_the_air;
  if (!landing) return ok_status();
  const std::optional<Landing::Outcome> outcome = landing->outcome();
  if (!outcome)
    return make_error(Code::kCompileTimeout, "", "the kernel is still being compiled",
                      "call again later: the compile goes on");
  landing.reset();
  // One that lacked registers is walked again: the failure is remembered, and a smaller tile
  // follows.
  if (outcome->status().code == Code::kResourceLimit) return ok_status();
  return outcome->status();
}

Result<WalkResult> KernelSet::State::find(int index, bool try_other_targets,
                                          const MissOptions& how) {
  WalkRequest wanted = request(index, try_other_targets, how);
  Source missed;
  wanted.missed = &missed;
  Result<WalkResult> walked = walk(engine.state(), wanted);
  if (!walked.ok()) return name_nearest(engine.state(), walked.status(), missed);
  WalkResult found = std::move(walked).value();
  if (!found.landing) return found;
  const std::lock_guard lock(mutex);
  slots[index].in_the_air = found.landing;
  return make_error(Code::kCompileTimeout, "",
                    "the kernel of request_key " + found.kernel.request_key + " is being compiled",
                    "call again later: the compile goes on");
}

Result<std::unique_ptr<AcquiredKernel>> KernelSet::State::find_and_load(int index,
                                                                        bool try_other_targets,
                                                                        const MissOptions& how,
                                                                        bool healed) {
  ATTNLOOM_TRY(WalkResult found, find(index, try_other_targets, how));
  auto kernel = std::make_unique<AcquiredKernel>(std::move(found.kernel));
  if (!engine.has_device()) return kernel;
  Result<std::shared_ptr<LoadedKernel>> loaded =
      engine.state().load(*found.built, kernel->entry, kernel->choice.shared_bytes);
  if (loaded.ok()) {
    kernel->loaded = std::move(loaded).value();
    return kernel;
  }
  const Status refusal = loaded.status();
  if (try_other_targets && kernel->target != parsed.spec.target->name()) {
    // That targets of one major run on its later chips is the rule, and chips have broken it.
    engine.log().warn("the kernel for " + kernel->target + " was refused: " + refusal.to_string());
    return find_and_load(index, false, how, healed);
  }
  // A kernel that this process compiled would come out the same again.
  const bool cached = found.built->origin != Origin::kCompiled;
  if (healed || !cached || refusal.path != kRefusedImage) return refusal;
  engine.state().reject(*found.built, kernel->request_key, refusal);
  Result<std::unique_ptr<AcquiredKernel>> anew = find_and_load(index, false, how, true);
  // Where nothing may be compiled, what went wrong is the refusal.
  if (!anew.ok() && anew.status().code == Code::kNotCached) return refusal;
  return anew;
}

const AcquiredKernel* KernelSet::State::settle(int index, std::unique_ptr<AcquiredKernel> kernel) {
  const std::lock_guard lock(mutex);
  Slot& slot = slots[index];
  if (!slot.owner) {
    slot.owner = std::move(kernel);
    slot.choice = slot.owner->choice;
    slot.in_the_air.reset();
    slot.kernel.store(slot.owner.get(), std::memory_order_release);
  }
  return slot.owner.get();
}

Result<const AcquiredKernel*> KernelSet::acquire(int index, Stream stream,
                                                 const AcquireOptions& given) {
  ATTNLOOM_CHECK(state_->check_index(index));
  if (const AcquiredKernel* kernel = acquired(index)) return kernel;
  ATTNLOOM_CHECK(state_->check_target());
  ATTNLOOM_CHECK(state_->check_not_capturing(stream));
  const MissOptions how = state_->miss_options(state_->engine.state().settled(given));
  if (how.miss == Miss::kStart) {
    if (const Status status = state_->check_in_the_air(index); !status.ok())
      return with_user_lines(status);
  }
  ATTNLOOM_TRY(std::unique_ptr<AcquiredKernel> kernel,
               state_->find_and_load(index, !state_->target_named, how, false));
  const AcquiredKernel* settled = state_->settle(index, std::move(kernel));
  state_->engine.state().access_log.note(spec(), *settled);
  return settled;
}

bool KernelSet::awaits(int index) const {
  const std::lock_guard lock(state_->mutex);
  return state_->slots[index].in_the_air != nullptr;
}

Result<KernelSet::Started> KernelSet::start(int index, Priority priority) {
  ATTNLOOM_CHECK(state_->check_index(index));
  ATTNLOOM_CHECK(state_->check_target());
  Started started;
  if (const AcquiredKernel* kernel = acquired(index)) {
    started.request_key = kernel->request_key;
    started.held = kernel->built;
    return started;
  }
  MissOptions how;
  how.miss = Miss::kStart;
  how.priority = priority;
  ATTNLOOM_TRY(WalkResult found,
               walk(state_->engine.state(), state_->request(index, !state_->target_named, how)));
  started.landing = std::move(found.landing);
  started.request_key = std::move(found.kernel.request_key);
  started.held = std::move(found.built);
  return started;
}

Status KernelSet::with_user_lines(Status error) const {
  return with_json_line(std::move(error), state_->parsed.field_lines);
}

Status KernelSet::prepare() {
  for (int i = 0; i < size(); ++i) {
    const Result<const AcquiredKernel*> kernel = acquire(i);
    if (!kernel.ok()) return kernel.status();
  }
  return ok_status();
}

Result<AcquiredKernel> KernelSet::look_up(int index, Source* missed) const {
  ATTNLOOM_CHECK(state_->check_index(index));
  WalkRequest request = state_->request(index, !state_->target_named, {});
  request.missed = missed;
  ATTNLOOM_TRY(WalkResult found, walk(state_->engine.state(), request));
  return std::move(found.kernel);
}

Result<Source> KernelSet::source(int index) const {
  ATTNLOOM_CHECK(state_->check_index(index));
  return render(spec(), state_->choice(index));
}

Result<std::string> KernelSet::request_key(int index) const {
  if (const AcquiredKernel* kernel = acquired(index)) return kernel->request_key;
  ATTNLOOM_TRY(const Source rendered, source(index));
  return attnloom::request_key(rendered);
}

}  // namespace attnloom
