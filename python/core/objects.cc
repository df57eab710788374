// SPDX-License-Identifier: Apache-2.0
#include "python/core/objects.h"

#include <nanobind/stl/string.h>

#include <cstring>
#include <deque>

#include "python/core/dlpack.h"
#include "python/core/tensors.h"

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

alm_plan_limits plan_limits(const PlanBounds& bounds) {
  alm_plan_limits limits = zeroed<alm_plan_limits>();
  limits.max_batch = bounds.max_batch;
  limits.max_qo_tokens = bounds.max_qo_tokens;
  limits.q_heads = bounds.q_heads;
  limits.kv_heads = bounds.kv_heads;
  limits.batch_invariant = bounds.batch_invariant ? 1 : 0;
  return limits;
}

void* stream_of(std::uintptr_t stream) {
  return reinterpret_cast<void*>(stream);
}

nb::object item_of(const nb::dict& given, const char* name) {
  const nb::str key(name);
  return given.contains(key) ? nb::object(given[key]) : nb::none();
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

PlanObject::PlanObject(std::shared_ptr<KernelObject> kernel, const PlanBounds& bounds)
    : kernel_(std::move(kernel)), plan_(kernel_->kernel(), plan_limits(bounds)) {
  const alm_plan_sizes& sizes = plan_.sizes();
  workspace_ =
      std::make_unique<Memory>(kernel_->context().get(), sizes.workspace_bytes, "workspace");
  staging_.reset(new std::byte[sizes.staging_bytes]);
  plan_.bind(workspace_->address(), sizes.workspace_bytes, staging_.get(), sizes.staging_bytes);
}

void PlanObject::update(const nb::dict& given, std::uintptr_t stream) {
  alm_workload workload = zeroed<alm_workload>();
  std::deque<Indices> arrays;
  const auto read = [&](const char* name) {
    arrays.push_back(borrow_indices(item_of(given, name), name));
    return arrays.back().view();
  };
  workload.qo_indptr = read("qo_indptr");
  workload.kv_indptr = read("kv_indptr");
  workload.last_page_len = read("last_page_len");
  workload.page_indices = read("page_indices");
  workload.kv_start = read("kv_start");
  workload.block_indptr = read("block_indptr");
  workload.block_indices = read("block_indices");
  workload.pool_pages = nb::cast<std::int64_t>(given["pool_pages"]);
  workload.kv_capacity = nb::cast<std::int64_t>(given["kv_capacity"]);
  workload.scale = nb::cast<float>(given["scale"]);
  workload.window_left = nb::cast<std::int32_t>(given["window_left"]);
  std::deque<std::string> names;
  std::vector<alm_scalar> scalars;
  const nb::dict params(nb::borrow<nb::dict>(item_of(given, "params")));
  for (const auto& [name, value] : params) {
    names.push_back(nb::cast<std::string>(name));
    scalars.push_back({names.back().c_str(), nb::cast<double>(value)});
  }
  workload.scalars = scalars.data();
  workload.scalar_count = scalars.size();
  const nb::gil_scoped_release released;
  const std::lock_guard lock(mutex_);
  plan_.update(workload, stream_of(stream));
}

void PlanObject::run(const nb::tuple& given, const nb::dict& pointers, std::uintptr_t stream) {
  alm_attention tensors = zeroed<alm_attention>();
  LaunchTensors launch(kernel_->context(), "q");
  // REQUIRES: `given` in the order of kPlaces.
  for (std::size_t i = 0; i < std::size(kPlaces); ++i) {
    const Place& place = kPlaces[i];
    launch.read(nb::object(given[i]), place.name, place.use, &(tensors.*place.tensor));
  }
  std::deque<std::string> names;
  std::vector<alm_pointer_param> params(pointers.size());
  std::size_t count = 0;
  for (const auto& [name, value] : pointers) {
    names.push_back("params." + nb::cast<std::string>(name));
    const char* const field = names.back().c_str();
    params[count].name = field + std::strlen("params.");
    launch.read(value, field, Use::kRead, &params[count++].tensor);
  }
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
