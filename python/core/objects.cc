// SPDX-License-Identifier: Apache-2.0
#include "python/core/objects.h"

#include <nanobind/stl/string.h>

#include <cstring>

#include "python/core/tensors.h"
#include "python/core/workload.h"

namespace attnloom::python {
namespace {

alm_context_options context_options(const ContextOptions& given) {
  const auto text = [](const std::string& value) {
    return value.empty() ? nullptr : value.c_str();
  };
  alm_context_options options = zeroed<alm_context_options>();
  options.device = static_cast<alm_device>(given.device);
  options.cache_dir = text(given.cache_dir);
  options.read_only_caches = text(given.read_only_caches);
  options.nvrtc = text(given.nvrtc);
  options.python_paths = text(given.python_paths);
  options.simulator_profile = text(given.simulator_profile);
  options.simulator_seed = given.simulator_seed;
  options.jit = static_cast<alm_jit>(given.jit);
  return options;
}

struct LimitPlace {
  const char* name;
  std::int32_t alm_plan_limits::*limit;
};
constexpr LimitPlace kLimits[] = {
    {"max_batch", &alm_plan_limits::max_batch},
    {"q_heads", &alm_plan_limits::q_heads},
    {"kv_heads", &alm_plan_limits::kv_heads},
    {"sm_budget", &alm_plan_limits::sm_budget},
    {"max_ctas", &alm_plan_limits::max_ctas},
    {"batch_invariant", &alm_plan_limits::batch_invariant},
    {"graph", &alm_plan_limits::graph},
    {"kernel", &alm_plan_limits::kernel},
    {"no_shared_prefixes", &alm_plan_limits::no_shared_prefixes},
};

alm_plan_limits plan_limits(const nb::dict& given) {
  alm_plan_limits limits = zeroed<alm_plan_limits>();
  for (const LimitPlace& place : kLimits)
    limits.*place.limit = nb::cast<std::int32_t>(given[place.name]);
  limits.max_qo_tokens = nb::cast<std::int64_t>(given["max_qo_tokens"]);
  return limits;
}

void* stream_of(std::uintptr_t stream) {
  return reinterpret_cast<void*>(stream);
}

// The tensors of one run: argument, place in alm_attention, whether the kernel writes to it.
struct Place {
  const char* name;
  alm_tensor alm_attention::*tensor;
  Use use;
};
constexpr Place kPlaces[] = {
    {"q", &alm_attention::q, Use::kRead},
    {"k", &alm_attention::k, Use::kRead},
    {"v", &alm_attention::v, Use::kRead},
    {"out", &alm_attention::o, Use::kWritten},
    {"lse", &alm_attention::lse, Use::kWritten},
    {"page_indices", &alm_attention::page_indices, Use::kRead},
    {"block_indices", &alm_attention::block_indices, Use::kRead},
    {"custom_mask", &alm_attention::custom_mask, Use::kRead},
    {"k_scale", &alm_attention::k_scale, Use::kRead},
    {"v_scale", &alm_attention::v_scale, Use::kRead},
};

}  // namespace

ContextObject::ContextObject(const ContextOptions& options)
    : context_(context_options(options)), device_(options.device) {}

bool ContextObject::is_simulated() {
  if (device_ != ALM_DEVICE_AUTO) return device_ == ALM_DEVICE_SIMULATOR;
  std::call_once(asked_, [this] {
    context_.synchronize();
    simulated_ = context_.describe().find("\"simulated\":true") != std::string::npos;
  });
  return simulated_;
}

KernelObject::KernelObject(std::shared_ptr<ContextObject> context, const std::string& spec_json)
    : context_(std::move(context)), kernel_(context_->context(), spec_json) {}

PendingObject::PendingObject(std::shared_ptr<KernelObject> kernel, bool prewarm)
    : kernel_(std::move(kernel)), pending_([&] {
        alm_prepare_options options = zeroed<alm_prepare_options>();
        options.priority = prewarm ? ALM_PRIORITY_PREWARM : ALM_PRIORITY_REQUEST;
        return kernel_->kernel().prepare_async(options);
      }()) {}

bool PendingObject::wait(std::int64_t timeout_ms) {
  if (timeout_ms >= 0) return pending_.wait_for(timeout_ms);
  pending_.wait();
  return true;
}

PlanObject::PlanObject(std::shared_ptr<KernelObject> kernel, const nb::dict& limits)
    : PlanObject(std::move(kernel), plan_limits(limits)) {}

// Planning may compile (of a plan for graphs), and memory waits for the device.
PlanObject::PlanObject(std::shared_ptr<KernelObject> kernel, const alm_plan_limits& limits)
    : kernel_(std::move(kernel)), plan_([&] {
        const nb::gil_scoped_release released;
        return Plan(kernel_->kernel(), limits);
      }()) {
  const nb::gil_scoped_release released;
  const alm_plan_sizes& sizes = plan_.sizes();
  alm_context* const context = kernel_->context().get();
  workspace_.emplace(context, sizes.workspace_bytes, "workspace");
  staging_.emplace(context, sizes.staging_bytes);
  plan_.bind(workspace_->address(), sizes.workspace_bytes, staging_->address(),
             sizes.staging_bytes);
}

// Freeing the workspace waits for the device, and threads of Python need not.
PlanObject::~PlanObject() {
  const nb::gil_scoped_release released;
  workspace_.reset();
  staging_.reset();
}

void PlanObject::update(const nb::dict& given, std::uintptr_t stream) {
  const WorkloadArrays arrays(given);
  const nb::gil_scoped_release released;
  const std::lock_guard lock(mutex_);
  plan_.update(arrays.get(), stream_of(stream));
}

void PlanObject::check(const nb::dict& given, std::uintptr_t stream) {
  const WorkloadArrays arrays(given);
  const nb::gil_scoped_release released;
  const std::lock_guard lock(mutex_);
  plan_.check(arrays.get(), stream_of(stream));
}

void PlanObject::run(const nb::tuple& given, const nb::dict& pointers, nb::handle given_stream) {
  alm_attention tensors = zeroed<alm_attention>();
  LaunchTensors launch(kernel_->context(), "q");
  // REQUIRES: `given` in the order of kPlaces.
  for (std::size_t i = 0; i < std::size(kPlaces); ++i) {
    const Place& place = kPlaces[i];
    launch.read(nb::object(given[i]), place.name, place.use, &(tensors.*place.tensor));
  }
  std::vector<std::string> names;
  names.reserve(pointers.size());  // they stay where they are
  std::vector<alm_pointer_param> params(pointers.size());
  std::size_t count = 0;
  for (const auto& [name, value] : pointers) {
    names.push_back("params." + nb::cast<std::string>(name));
    const char* const field = names.back().c_str();
    params[count].name = field + std::strlen("params.");
    launch.read(value, field, Use::kRead, &params[count++].tensor);
  }
  const std::uintptr_t stream = launch.stream(given_stream, nb::object(given[0]));
  tensors.params = params.data();
  tensors.param_count = params.size();
  const nb::gil_scoped_release released;
  const std::lock_guard lock(mutex_);
  launch.launch(stream, [&] { plan_.run(tensors, stream_of(stream)); });
}

std::string PlanObject::describe() {
  const nb::gil_scoped_release released;
  const std::lock_guard lock(mutex_);
  return plan_.describe();
}

}  // namespace attnloom::python
