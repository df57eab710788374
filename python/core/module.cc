// SPDX-License-Identifier: Apache-2.0
// attnloom._core: the C interface for the package's Python files, which give it names, defaults and
// types. Nothing here is public.
#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include "python/core/block_sparse.h"
#include "python/core/dlpack.h"
#include "python/core/objects.h"
#include "python/core/operations.h"
#include "python/core/refusal.h"

namespace attnloom::python {
namespace {

// (dtype, shape, DLPack device type and number) of a tensor.
nb::tuple describe_tensor(nb::handle object, const char* name) {
  const Borrowed borrowed = borrow(object, name);
  if (!borrowed.given()) refuse_tensor(name, "must be a tensor, given None");
  nb::list shape;
  for (int i = 0; i < borrowed.tensor.rank; ++i) shape.append(borrowed.tensor.shape[i]);
  return nb::make_tuple(dtype_name(borrowed.tensor.dtype), nb::tuple(shape), borrowed.device_type,
                        borrowed.device_id);
}

void bind_context(nb::module_& module) {
  nb::class_<ContextObject>(module, "Context")
      .def(
          "__init__",
          [](ContextObject* self, int device, std::string cache_dir, std::string read_only_caches,
             std::string nvrtc, std::string python_paths, std::string simulator_profile,
             std::uint64_t simulator_seed, int jit) {
            const ContextOptions options = {device,         cache_dir,    read_only_caches,
                                            nvrtc,          python_paths, simulator_profile,
                                            simulator_seed, jit};
            new (self) ContextObject(options);
          },
          nb::arg("device"), nb::arg("cache_dir"), nb::arg("read_only_caches"), nb::arg("nvrtc"),
          nb::arg("python_paths"), nb::arg("simulator_profile"), nb::arg("simulator_seed"),
          nb::arg("jit"))
      .def("is_simulated", &ContextObject::is_simulated, nb::call_guard<nb::gil_scoped_release>())
      .def(
          "describe", [](ContextObject& self) { return self.context().describe(); },
          nb::call_guard<nb::gil_scoped_release>())
      .def(
          "statistics", [](ContextObject& self) { return self.context().statistics(); },
          nb::call_guard<nb::gil_scoped_release>())
      .def(
          "freeze",
          [](ContextObject& self, int how) { self.context().freeze(static_cast<alm_freeze>(how)); },
          nb::arg("how"), nb::call_guard<nb::gil_scoped_release>())
      .def(
          "synchronize",
          [](ContextObject& self, std::uintptr_t stream) {
            self.context().synchronize(reinterpret_cast<void*>(stream));
          },
          nb::arg("stream"), nb::call_guard<nb::gil_scoped_release>());
}

void bind_kernel(nb::module_& module) {
  nb::class_<KernelObject>(module, "Kernel")
      .def(nb::init<std::shared_ptr<ContextObject>, const std::string&>(), nb::arg("context"),
           nb::arg("spec_json"))
      .def(
          "prepare", [](KernelObject& self) { self.kernel().prepare(); },
          nb::call_guard<nb::gil_scoped_release>())
      .def(
          "describe", [](KernelObject& self) { return self.kernel().describe(); },
          nb::call_guard<nb::gil_scoped_release>());
}

void bind_pending(nb::module_& module) {
  nb::class_<PendingObject>(module, "Pending")
      .def(nb::init<std::shared_ptr<KernelObject>, bool>(), nb::arg("kernel"), nb::arg("prewarm"),
           nb::call_guard<nb::gil_scoped_release>())
      .def("wait", &PendingObject::wait, nb::arg("timeout_ms"),
           nb::call_guard<nb::gil_scoped_release>())
      .def("cancel", &PendingObject::cancel, nb::call_guard<nb::gil_scoped_release>());
}

void bind_plan(nb::module_& module) {
  nb::class_<PlanObject>(module, "Plan")
      .def(nb::init<std::shared_ptr<KernelObject>, const nb::dict&>(), nb::arg("kernel"),
           nb::arg("limits"))
      .def("check", &PlanObject::check, nb::arg("workload"), nb::arg("stream"))
      .def("update", &PlanObject::update, nb::arg("workload"), nb::arg("stream"))
      .def("run", &PlanObject::run, nb::arg("tensors"), nb::arg("params"), nb::arg("stream").none())
      .def("describe", &PlanObject::describe);
}

// Needs no plan. Nothing that may be None is left out.
void bind_operations(nb::module_& module) {
  module.def("merge", &merge, nb::arg("kernel"), nb::arg("outs"), nb::arg("lses"), nb::arg("out"),
             nb::arg("lse").none(), nb::arg("stream").none());
  module.def("append", &append, nb::arg("kernel"), nb::arg("tensors"), nb::arg("host"),
             nb::arg("rope_scale"), nb::arg("rope_theta"), nb::arg("stream").none());
  module.def("page_copy", &page_copy, nb::arg("kernel"), nb::arg("pairs"), nb::arg("k_cache"),
             nb::arg("v_cache"), nb::arg("host_pairs").none(), nb::arg("stream").none());
}

}  // namespace
}  // namespace attnloom::python

NB_MODULE(_core, module) {
  using namespace attnloom::python;
  // What a user keeps until the interpreter ends is the user's business, and no reason to print.
  nb::set_leak_warnings(false);
  register_errors();
  bind_context(module);
  bind_kernel(module);
  bind_pending(module);
  bind_plan(module);
  bind_operations(module);
  bind_block_sparse(module);
  module.def("describe_tensor", &describe_tensor, nb::arg("tensor").none(), nb::arg("name"));
  module.def(
      "ends_of",
      [](nb::handle indptr) {
        const auto [requests, tokens] = ends_of(indptr);
        return nb::make_tuple(requests, tokens);
      },
      nb::arg("indptr").none());
  module.def("version", [] { return alm_version(); });
}
