// SPDX-License-Identifier: Apache-2.0
#include "python/core/tensors.h"

#include <string>
#include <utility>

#include "python/core/exchange.h"
#include "python/core/refusal.h"

namespace attnloom::python {
namespace {

// Whether a tensor may lie on another GPU than the current one. Asked of torch once it is there,
// and of the runtime that it has loaded: torch.cuda.device_count() first looks for NVML and starts
// it.
bool several_devices() {
  static int count = -1;
  if (count >= 0) return count > 1;
  const nb::dict modules = nb::cast<nb::dict>(nb::module_::import_("sys").attr("modules"));
  if (!modules.contains("torch")) return false;
  const nb::object torch(modules["torch"]);
  const nb::object runtime = torch.attr("_C");
  const char* const own = "_cuda_getDeviceCount";
  count = nb::cast<int>(nb::hasattr(runtime, own) ? runtime.attr(own)()
                                                  : torch.attr("cuda").attr("device_count")());
  return count > 1;
}

}  // namespace

LaunchTensors::LaunchTensors(ContextObject& context, const char* first)
    : context_(context), first_(first), simulated_(context.is_simulated()) {
  constexpr std::size_t kUsual = 16;
  held_.reserve(kUsual);
  if (simulated_) parts_.reserve(kUsual);
}

void LaunchTensors::read(nb::handle object, const char* name, Use use, alm_tensor* to) {
  *to = {};
  if (object.is_none()) return;
  Borrowed borrowed = borrow(object, name);
  check_place(borrowed, name);
  if (use == Use::kWritten && borrowed.read_only)
    refuse_tensor(name, "is read-only, and the kernel writes to it", "pass a writable tensor");
  *to = borrowed.tensor;
  held_.push_back(std::move(borrowed.capsule));
  if (simulated_) parts_.push_back({to, name, use});
}

// A kernel follows any address it is given, so where a tensor lies is checked before the library
// sees it.
void LaunchTensors::check_place(const Borrowed& borrowed, const char* name) {
  const auto refuse = [&](const char* wanted, const char* remedy) {
    refuse_tensor(name,
                  "must lie on " + std::string(wanted) + ", given DLPack device type " +
                      std::to_string(borrowed.device_type),
                  remedy);
  };
  if (simulated_) {
    if (!borrowed.on_host())
      refuse("the host for the simulated device",
             "pass a CPU tensor, or make the context with device=\"cuda\"");
    return;
  }
  if (borrowed.device_type != kCuda && borrowed.device_type != kCudaManaged)
    refuse("a CUDA device", "copy it there, or make the context with device=\"simulator\"");
  if (device_id_ >= 0 && borrowed.device_id != device_id_)
    refuse_tensor(name, "must lie on device " + std::to_string(device_id_) + " as " + first_ +
                            " does, given " + std::to_string(borrowed.device_id));
  if (device_id_ < 0) api_ = borrowed.api;
  device_id_ = borrowed.device_id;
}

// What a table does not tell Python finds out (attnloom._arrays): streams given as objects, tensors
// of frameworks without a table, and the current device where there are several.
std::uintptr_t LaunchTensors::stream(nb::handle given, nb::handle first_tensor) {
  if (simulated_ && given.is_none()) return 0;
  if (api_ && api_->current_stream && !several_devices()) {
    void* current = nullptr;
    if (given.is_none() && api_->current_stream(kCuda, device_id_, &current) == 0)
      return reinterpret_cast<std::uintptr_t>(current);
    std::uintptr_t address = 0;
    if (PyLong_CheckExact(given.ptr()) && nb::try_cast(given, address)) return address;
    PyErr_Clear();
  }
  static const nb::object* const stream_of =
      new nb::object(nb::module_::import_("attnloom._arrays").attr("stream_of"));
  return nb::cast<std::uintptr_t>((*stream_of)(given, first_tensor));
}

}  // namespace attnloom::python
