// SPDX-License-Identifier: Apache-2.0
// The kernels that need no plan: merges of attention states, and what writes to paged caches.
//
// The GIL is released while the library works. Any number of threads.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>

#include "python/core/objects.h"

namespace attnloom::python {

namespace nb = nanobind;

// `outs` and `lses`: a tensor of all states, or a list or tuple of one or two, which lie anywhere.
void merge(KernelObject& kernel, nb::handle outs, nb::handle lses, nb::handle out, nb::handle lse,
           nb::handle stream);

// tensors: key, value, batch_indices, positions, page_indptr, page_indices, k_cache, v_cache,
// k_scale, v_scale, q, q_out; or None. host: copies of the four index arrays, or nothing.
void append(KernelObject& kernel, const nb::tuple& tensors, const nb::tuple& host, float rope_scale,
            float rope_theta, nb::handle stream);

void page_copy(KernelObject& kernel, nb::handle pairs, nb::handle k_cache, nb::handle v_cache,
               nb::handle host_pairs, nb::handle stream);

}  // namespace attnloom::python
