// SPDX-License-Identifier: Apache-2.0
// Kernels that need no plan: merge, append, append_rope, page_copy. Eight lanes share a row of
// their output and a launch has as many CTAs as its rows need. Thread-safe; after the first launch
// of a kernel without locks and allocations (but for host mirrors).
#pragma once

#include "base/status.h"
#include "engine/kernel_set.h"
#include "runtime/cache_launch.h"
#include "runtime/launch.h"

namespace attnloom {

// `kernels` was opened from a spec of the kernel of that name, or ARGUMENT_INVALID at "kernel".
// Other errors: those of the tensors' checks, of KernelSet::acquire and of Backend::launch.
Status run_merge(KernelSet& kernels, const MergeTensors& tensors, Stream stream);
// append and append_rope.
Status run_append(KernelSet& kernels, const AppendTensors& tensors, Stream stream);
Status run_page_copy(KernelSet& kernels, const PageCopyTensors& tensors, Stream stream);

}  // namespace attnloom
