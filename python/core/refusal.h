// SPDX-License-Identifier: Apache-2.0
// Errors on their way to Python: what the library says (attnloom::Error) and what the binding
// refuses itself become instances of attnloom.Error's subclasses. Fields are named as Python's
// arguments are.
#pragma once

#include <nanobind/nanobind.h>

#include <attnloom/attnloom.hpp>
#include <string>

namespace attnloom::python {

namespace nb = nanobind;

struct Refusal {
  alm_code code;
  std::string field;
  std::string cause;
  std::string remedy;
};

[[noreturn]] void refuse_tensor(const std::string& field, const std::string& cause,
                                const std::string& remedy = "");
[[noreturn]] void refuse_argument(const std::string& field, const std::string& cause,
                                  const std::string& remedy = "");

// "workload.qo_indptr" is the argument qo_indptr, and "o.shape[0]" is out.shape[0].
std::string python_field(const std::string& path);

void register_errors();

}  // namespace attnloom::python
