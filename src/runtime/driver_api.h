// SPDX-License-Identifier: Apache-2.0
// DriverApi: libcuda.so.1 opened at run time, and the calls of it that Attnloom uses, in one table.
// The prototypes are written out here, because a build must not need CUDA's headers, and nothing is
// needed at link time.
//
// Immutable once opened; thread-safe. Opening calls no driver function, so a process may open it
// and fork. The library stays mapped for good: the driver keeps threads of its own that must not
// lose their code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"

namespace attnloom {

// Names and types as in NVIDIA's driver API reference; handles are opaque.
using CUresult = int;
using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUcontext = struct CUctx_st*;
using CUlibrary = struct CUlib_st*;
using CUkernel = struct CUkern_st*;
using CUfunction = struct CUfunc_st*;
using CUstream = struct CUstream_st*;
using CUevent = struct CUevent_st*;

// X(member, symbol, parameters): every function is required.
#define ATTNLOOM_DRIVER_FUNCTIONS(X)                                                           \
  X(init, cuInit, (unsigned flags))                                                            \
  X(driver_get_version, cuDriverGetVersion, (int* version))                                    \
  X(get_error_name, cuGetErrorName, (CUresult error, const char** text))                       \
  X(get_error_string, cuGetErrorString, (CUresult error, const char** text))                   \
  X(device_get_count, cuDeviceGetCount, (int* count))                                          \
  X(device_get, cuDeviceGet, (CUdevice * device, int ordinal))                                 \
  X(device_get_name, cuDeviceGetName, (char* name, int bytes, CUdevice device))                \
  X(device_get_attribute, cuDeviceGetAttribute, (int* value, int attribute, CUdevice device))  \
  X(primary_ctx_retain, cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device))      \
  X(primary_ctx_release, cuDevicePrimaryCtxRelease_v2, (CUdevice device))                      \
  X(ctx_get_current, cuCtxGetCurrent, (CUcontext * context))                                   \
  X(ctx_set_current, cuCtxSetCurrent, (CUcontext context))                                     \
  X(ctx_get_device, cuCtxGetDevice, (CUdevice * device))                                       \
  X(library_load_data, cuLibraryLoadData,                                                      \
    (CUlibrary * library, const void* code, int* jit_options, void** jit_values,               \
     unsigned jit_count, int* options, void** values, unsigned count))                         \
  X(library_unload, cuLibraryUnload, (CUlibrary library))                                      \
  X(library_get_kernel, cuLibraryGetKernel,                                                    \
    (CUkernel * kernel, CUlibrary library, const char* name))                                  \
  X(kernel_get_function, cuKernelGetFunction, (CUfunction * function, CUkernel kernel))        \
  X(kernel_set_attribute, cuKernelSetAttribute,                                                \
    (int attribute, int value, CUkernel kernel, CUdevice device))                              \
  X(launch_kernel, cuLaunchKernel,                                                             \
    (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, \
     unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream,               \
     void** parameters, void** extra))                                                         \
  X(tensor_map_encode_tiled, cuTensorMapEncodeTiled,                                           \
    (void* map, int type, unsigned rank, void* address, const std::uint64_t* dims,             \
     const std::uint64_t* stride_bytes, const std::uint32_t* box,                              \
     const std::uint32_t* element_strides, int interleave, int swizzle, int l2_promotion,      \
     int fill))                                                                                \
  X(stream_synchronize, cuStreamSynchronize, (CUstream stream))                                \
  X(stream_is_capturing, cuStreamIsCapturing, (CUstream stream, int* status))                  \
  X(event_create, cuEventCreate, (CUevent * event, unsigned flags))                            \
  X(event_destroy, cuEventDestroy_v2, (CUevent event))                                         \
  X(event_record, cuEventRecord, (CUevent event, CUstream stream))                             \
  X(event_synchronize, cuEventSynchronize, (CUevent event))                                    \
  X(mem_alloc, cuMemAlloc_v2, (CUdeviceptr * address, std::size_t bytes))                      \
  X(mem_free, cuMemFree_v2, (CUdeviceptr address))                                             \
  X(mem_alloc_host, cuMemAllocHost_v2, (void** address, std::size_t bytes))                    \
  X(mem_free_host, cuMemFreeHost, (void* address))                                             \
  X(memcpy_htod_async, cuMemcpyHtoDAsync_v2,                                                   \
    (CUdeviceptr to, const void* from, std::size_t bytes, CUstream stream))                    \
  X(memcpy_htod, cuMemcpyHtoD_v2, (CUdeviceptr to, const void* from, std::size_t bytes))       \
  X(memcpy_dtoh, cuMemcpyDtoH_v2, (void* to, CUdeviceptr from, std::size_t bytes))

class DriverApi {
 public:
  // `path` "": libcuda.so.1 by the loader's own search. NO_DRIVER when it cannot be opened,
  // DRIVER_TOO_OLD when a function is missing.
  static Result<std::shared_ptr<const DriverApi>> open(const std::string& path);
  DriverApi(const DriverApi&) = delete;
  DriverApi& operator=(const DriverApi&) = delete;

#define ATTNLOOM_DRIVER_MEMBER(member, symbol, parameters) CUresult(*member) parameters = nullptr;
  ATTNLOOM_DRIVER_FUNCTIONS(ATTNLOOM_DRIVER_MEMBER)
#undef ATTNLOOM_DRIVER_MEMBER
  // Since 12.4; null before. Loads a function now that lazy loading would load at its first launch.
  CUresult (*func_load)(CUfunction function) = nullptr;

 private:
  DriverApi() = default;
};

// A driver's result as an error: the fitting code, the driver's own name and text, and what was
// tried. REQUIRES: result != 0
Status driver_error(const DriverApi& api, CUresult result, const std::string& doing,
                    Code otherwise);

}  // namespace attnloom
