// SPDX-License-Identifier: Apache-2.0
// The real device: a Backend over the driver API. Kernels are loaded as CUDA libraries, which
// belong to no context, so one load serves every context of the process; the shared memory
// attribute is set per device.
//
// Thread-safe. Works in the context that is current in the calling thread and leaves it current.
// When there is none it makes the context current that was so when the backend was made, else the
// primary context of device 0. That context must live as long as the backend.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "runtime/backend.h"

namespace attnloom {

// Initialises the driver; the device is that of the current context. `library` "": libcuda.so.1.
// Errors: NO_DRIVER, DRIVER_TOO_OLD, NO_DEVICE; SPEC_UNSUPPORTED for a device older than compute
// capability 8.0.
Result<std::unique_ptr<Backend>> make_cuda_backend(const std::string& library);

// The target that kernels for a compute capability are compiled for: sm_90a on 9.0, else sm_NN.
Target own_target(int major, int minor);

}  // namespace attnloom
