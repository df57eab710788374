// SPDX-License-Identifier: Apache-2.0
#include "python/core/refusal.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace attnloom::python {
namespace {

// Text that quotes what a user gave need not be UTF-8.
nb::object text(const std::string& utf8) {
  return nb::steal(
      PyUnicode_DecodeUTF8(utf8.data(), static_cast<Py_ssize_t>(utf8.size()), "replace"));
}

void set_error(alm_code code, const std::string& field, const std::string& cause,
               const std::string& remedy, bool retryable) {
  try {
    const nb::object made = nb::module_::import_("attnloom._errors")
                                .attr("from_code")(alm_code_name(code), text(field), text(cause),
                                                   text(remedy), retryable);
    PyErr_SetObject(made.type().ptr(), made.ptr());
  } catch (nb::python_error& error) {
    error.restore();
  }
}

void translate(const std::exception_ptr& thrown, void* /*payload*/) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    set_error(error.code(), python_field(error.path()), error.cause(), error.remedy(),
              error.retryable());
  } catch (const Refusal& refusal) {
    set_error(refusal.code, refusal.field, refusal.cause, refusal.remedy, false);
  }
}

}  // namespace

void refuse_tensor(const std::string& field, const std::string& cause, const std::string& remedy) {
  throw Refusal{ALM_TENSOR_INVALID, field, cause, remedy};
}

void refuse_argument(const std::string& field, const std::string& cause,
                     const std::string& remedy) {
  throw Refusal{ALM_ARGUMENT_INVALID, field, cause, remedy};
}

std::string python_field(const std::string& path) {
  for (const std::string_view group :
       {"workload.", "limits.", "options.", "tensors.", "ragged.", "lists.", "pages.",
        "picks.pages.", "picks.", "tree.", "drafts.", "mask.", "heads."})
    if (path.compare(0, group.size(), group) == 0) return path.substr(group.size());
  constexpr std::pair<std::string_view, const char*> kRenamed[] = {
      {"o", "out"}, {"o_in", "outs"}, {"lse_in", "lses"}};
  for (const auto& [name, python_name] : kRenamed) {
    const std::string_view rest = std::string_view(path).substr(std::min(name.size(), path.size()));
    if (path.compare(0, name.size(), name) == 0 && (rest.empty() || rest[0] == '.'))
      return python_name + std::string(rest);
  }
  return path;
}

void register_errors() {
  nb::register_exception_translator(translate);
}

}  // namespace attnloom::python
