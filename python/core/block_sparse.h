// SPDX-License-Identifier: Apache-2.0
// Block-sparse patterns of the C interface, and their arrays as DLPack exporters of no framework.
#pragma once

#include <nanobind/nanobind.h>

namespace attnloom::python {

void bind_block_sparse(nanobind::module_& module);

}  // namespace attnloom::python
