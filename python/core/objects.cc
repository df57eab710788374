// SPDX-License-Identifier: Apache-2.0
#include "python/core/objects.h"

#include <nanobind/stl/string.h>

#include <deque>
#include <optional>

#include "python/core/dlpack.h"
#include "python/core/refusal.h"
#include "python/core/staging.h"

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
  bool is_output;
};
constexpr Place kPlaces[] = {
    {"q", &alm_attention::q, false},
    {"k", &alm_attention::k, false},
    {"v", &alm_attention::v, false},
    {"out", &alm_attention::o, true},
    {"lse", &alm_attention::lse, true},
    {"page_indices", &alm_attention::page_indices, false},
    {"block_indices", &alm_attention::block_indices, false},
    {"custom_mask", &alm_attention::custom_mask, false},
    {"k_scale", &alm_attention::k_scale, false},
    {"v_scale", &alm_attention::v_scale, false},
};

// A kernel follows any address it is given, so where a tensor lies is checked before the library
// sees it. `device_id` is that of the first tensor, -1 before.
void check_place(const Borrowed& borrowed, const char* name, bool simulated, int* device_id) {
  const auto refuse = [&](const char* wanted, const char* remedy) {
    refuse_tensor(name,
                  "must lie on " + std::string(wanted) + ", given DLPack device type " +
                      std::to_string(borrowed.device_type),
                  remedy);
  };
  if (simulated) {
    if (!borrowed.on_host())
      refuse("the host for the simulated device",
             "pass a CPU tensor, or make the context with device=\"cuda\"");
    return;
  }
  if (borrowed.device_type != kCuda && borrowed.device_type != kCudaManaged)
    refuse("a CUDA device", "copy it there, or make the context with device=\"simulator\"");
  if (*device_id >= 0 && borrowed.device_id != *device_id)
    refuse_tensor(name, "must lie on device " + std::to_string(*device_id) + " as q does, given " +
                            std::to_string(borrowed.device_id));
  *device_id = borrowed.device_id;
}

}  // namespace

ContextObject::ContextObject(const ContextOptions& options)
    : context_(context_options(options)), device_(options.device) {}

bool ContextObject::is_simulated() {
  if (device_ != ALM_DEVICE_AUTO) return device_ == ALM_DEVICE_SIMULATOR;
  context_.synchronize();
  return context_.describe().find("\"simulated\":true") != std::string::npos;
}

KernelObject::KernelObject(std::shared_ptr<ContextObject> context, const std::string& spec_json)
    : context_(std::move(context)), kernel_(context_->context(), spec_json) {}

PlanObject::PlanObject(std::shared_ptr<KernelObject> kernel, const PlanBounds& bounds)
    : kernel_(std::move(kernel)),
      simulated_(kernel_->context().is_simulated()),
      plan_(kernel_->kernel(), plan_limits(bounds)) {
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
  std::vector<Borrowed> held;
  held.reserve(std::size(kPlaces) + pointers.size());
  int device_id = -1;
  const auto read = [&](nb::handle object, const char* name, bool is_output) {
    held.push_back(borrow(object, name));
    const Borrowed& borrowed = held.back();
    if (!borrowed.given()) return alm_tensor{};
    check_place(borrowed, name, simulated_, &device_id);
    if (is_output && borrowed.read_only)
      refuse_tensor(name, "is read-only, and the kernel writes to it", "pass a writable tensor");
    return borrowed.tensor;
  };
  // REQUIRES: `given` in the order of kPlaces.
  for (std::size_t i = 0; i < std::size(kPlaces); ++i) {
    const nb::object object(given[i]);
    if (object.is_none()) continue;
    tensors.*kPlaces[i].tensor = read(object, kPlaces[i].name, kPlaces[i].is_output);
  }
  std::deque<std::string> names;
  std::vector<alm_pointer_param> params;
  for (const auto& [name, value] : pointers) {
    names.push_back(nb::cast<std::string>(name));
    params.push_back(
        {names.back().c_str(), read(value, ("params." + names.back()).c_str(), false)});
  }
  const nb::gil_scoped_release released;
  const std::lock_guard lock(mutex_);
  launch(&tensors, &params, stream);
}

// REQUIRES: the lock, and no GIL.
void PlanObject::launch(alm_attention* tensors, std::vector<alm_pointer_param>* params,
                        std::uintptr_t stream) {
  std::optional<Staging> staging;
  if (simulated_) {
    staging.emplace(kernel_->context().get());
    for (const Place& place : kPlaces) {
      alm_tensor* tensor = &(tensors->*place.tensor);
      if (tensor->dtype != ALM_DTYPE_NONE) staging->add(tensor, place.name, place.is_output);
    }
    for (alm_pointer_param& param : *params) staging->add(&param.tensor, param.name, false);
    staging->copy_in();
  }
  tensors->params = params->data();
  tensors->param_count = params->size();
  plan_.run(*tensors, stream_of(stream));
  if (!staging) return;
  kernel_->context().context().synchronize(stream_of(stream));
  staging->copy_out();
}

std::string PlanObject::describe() {
  const nb::gil_scoped_release released;
  const std::lock_guard lock(mutex_);
  return plan_.describe();
}

}  // namespace attnloom::python
