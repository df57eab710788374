// SPDX-License-Identifier: Apache-2.0
#include "python/core/exchange.h"

#include <nanobind/stl/string.h>

#include <string>

namespace attnloom::python {
namespace {

namespace nb = nanobind;

constexpr const char* kAttribute = "__dlpack_c_exchange_api__";
constexpr const char* kGradient = "requires_grad";

bool is_torch_parameter(nb::handle type) {
  return nb::cast<std::string>(type.attr("__module__")) == "torch.nn.parameter" &&
         nb::cast<std::string>(type.attr("__name__")) == "Parameter";
}

const ExchangeApi* look_up(nb::handle type) {
  if (!nb::hasattr(type, kAttribute)) return nullptr;
  const nb::object own = nb::getattr(type, "__dict__");
  if (PySequence_Contains(own.ptr(), nb::str(kAttribute).ptr()) != 1 && !is_torch_parameter(type)) {
    PyErr_Clear();
    return nullptr;
  }
  const nb::object capsule = nb::getattr(type, kAttribute);
  if (!PyCapsule_IsValid(capsule.ptr(), "dlpack_exchange_api")) return nullptr;
  const void* held = PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api");
  const auto* api = static_cast<const ExchangeApi*>(held);
  while (api && api->major != kDlpackMajor) api = api->older;
  return api && api->view ? api : nullptr;
}

Exporter make_exporter(nb::handle type) {
  Exporter made;
  made.api = look_up(type);
  if (!made.api || !nb::hasattr(type, kGradient)) return made;
  made.gradient = nb::getattr(type, kGradient);
  PyTypeObject* const kind = Py_TYPE(made.gradient.ptr());
  // Of others an object may have its own.
  if (PyType_GetSlot(kind, Py_tp_descr_set))
    made.get_gradient = reinterpret_cast<descrgetfunc>(PyType_GetSlot(kind, Py_tp_descr_get));
  return made;
}

// The types seen last; a process has one or two. Never freed, and a type is kept while it is here,
// so that no other can come to lie at its address.
struct Known {
  nb::object type;
  Exporter exporter;
};
constexpr int kKnown = 8;

}  // namespace

const Exporter& exporter_of(nb::handle object) {
  static Known* const known = new Known[kKnown];
  static int next = 0;
  const nb::handle type = object.type();
  for (int i = 0; i < kKnown; ++i)
    if (known[i].type.is(type)) return known[i].exporter;
  Known& place = known[next];
  place = {nb::borrow(type), make_exporter(type)};
  next = (next + 1) % kKnown;
  return place.exporter;
}

}  // namespace attnloom::python
