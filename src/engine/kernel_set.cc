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
    KernelChoice choice;  // guarded by mutex
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
  Status check_device(Stream stream);
  Result<std::shared_ptr<AcquiredKernel>> find_and_load(int index, bool try_other_targets);
  const AcquiredKernel* settle(int index, const AcquiredKernel& kernel);

  Engine& engine;
  const ParsedSpec parsed;
  const bool target_named;
  mutable std::mutex mutex;
  std::vector<Slot> slots;
  Flight<AcquiredKernel> flight;
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

// Everything that must be known before a kernel is compiled or loaded for the engine's device.
Status KernelSet::State::check_device(Stream stream) {
  if (!engine.has_device()) return ok_status();
  ATTNLOOM_TRY(Backend * device, engine.backend());
  const Target target = *parsed.spec.target;
  if (!device_accepts(device->device(), target)) {
    return make_error(Code::kArchMismatch, "$.target",
                      "kernels for " + target.name() + " cannot run on " + device->device().name +
                          " (" + device->device().target.name() + ")",
                      "leave the target out, or name the device's own");
  }
  ATTNLOOM_TRY(const bool capturing, device->is_capturing(stream));
  if (!capturing) return ok_status();
  return make_error(Code::kCaptureActive, "",
                    "a kernel is not loaded yet and the stream is being captured",
                    "call alm_kernel_prepare before the capture begins");
}

Result<std::shared_ptr<AcquiredKernel>> KernelSet::State::find_and_load(int index,
                                                                        bool try_other_targets) {
  WalkRequest request;
  request.spec = &parsed.spec;
  request.field_lines = &parsed.field_lines;
  request.choice = choice(index);
  request.index = index;
  request.try_other_targets = try_other_targets;
  request.may_compile = engine.state().options.jit;
  Source missed;
  request.missed = &missed;
  Result<WalkResult> walked = walk(engine.state(), request);
  if (!walked.ok()) return name_nearest(engine.state(), walked.status(), missed);
  WalkResult found = std::move(walked).value();
  auto kernel = std::make_shared<AcquiredKernel>(std::move(found.kernel));
  if (!engine.has_device()) return kernel;
  Result<std::shared_ptr<LoadedKernel>> loaded =
      engine.state().load(*found.built, kernel->entry, kernel->choice.shared_bytes);
  if (loaded.ok()) {
    kernel->loaded = std::move(loaded).value();
    return kernel;
  }
  if (!try_other_targets || kernel->target == parsed.spec.target->name()) return loaded.status();
  // That targets of one major run on its later chips is the rule, and chips have broken it.
  engine.log().warn("the kernel for " + kernel->target +
                    " was refused: " + loaded.status().to_string());
  return find_and_load(index, false);
}

const AcquiredKernel* KernelSet::State::settle(int index, const AcquiredKernel& kernel) {
  const std::lock_guard lock(mutex);
  Slot& slot = slots[index];
  if (!slot.owner) {
    slot.owner = std::make_unique<const AcquiredKernel>(kernel);
    slot.choice = kernel.choice;
    slot.kernel.store(slot.owner.get(), std::memory_order_release);
  }
  return slot.owner.get();
}

Result<const AcquiredKernel*> KernelSet::acquire(int index, Stream stream) {
  ATTNLOOM_CHECK(state_->check_index(index));
  if (const AcquiredKernel* kernel = acquired(index)) return kernel;
  ATTNLOOM_CHECK(state_->check_device(stream));
  ATTNLOOM_TRY(const std::shared_ptr<AcquiredKernel> kernel,
               state_->flight.run(std::to_string(index), [&] {
                 return state_->find_and_load(index, !state_->target_named);
               }));
  const AcquiredKernel* settled = state_->settle(index, *kernel);
  state_->engine.state().access_log.note(spec(), *settled);
  return settled;
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
  WalkRequest request;
  request.spec = &state_->parsed.spec;
  request.field_lines = &state_->parsed.field_lines;
  request.choice = state_->choice(index);
  request.index = index;
  request.try_other_targets = !state_->target_named;
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
