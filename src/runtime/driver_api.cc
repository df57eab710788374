// SPDX-License-Identifier: Apache-2.0
#include "runtime/driver_api.h"

#include <dlfcn.h>

namespace attnloom {
namespace {

// A row says what a driver's number means for our caller; other numbers take the code of the call
// that failed.
struct ErrorRow {
  CUresult result;
  Code code;
  const char* remedy;
};

constexpr ErrorRow kErrors[] = {
    {2, Code::kOutOfMemory, "free device memory and try again"},
    {3, Code::kForked,
     "the driver was initialised before a fork; use the device only in the process that began with "
     "it"},
    {34, Code::kNoDriver,
     "the stub library was loaded; install the driver, or take the stubs folder out of the search"},
    {100, Code::kNoDevice,
     "check that the driver sees a device (nvidia-smi) and that it is not hidden"},
    {101, Code::kNoDevice,
     "check that the driver sees a device (nvidia-smi) and that it is not hidden"},
    {200, Code::kLoadFailed, ""},
    {201, Code::kLaunch, "make the context current that the kernel's memory belongs to"},
    {209, Code::kArchMismatch, "compile for this device's own target"},
    {218, Code::kLoadFailed, ""},
    {222, Code::kDriverTooOld, "update the driver"},
    {701, Code::kResourceLimit, ""},
    {803, Code::kDriverTooOld,
     "the driver's library and its kernel module differ; restart after the update"},
    {804, Code::kDriverTooOld,
     "this chip needs a newer driver than the compatibility package allows"},
    {900, Code::kCaptureActive, "prepare kernels and update plans before the capture begins"},
    {901, Code::kCaptureActive,
     "the capture was invalidated by an earlier call; end it and begin again"},
    {906, Code::kCaptureActive,
     "use a stream of your own beside a capture, not the default stream"},
};

}  // namespace

Result<std::shared_ptr<const DriverApi>> DriverApi::open(const std::string& path) {
  const std::string name = path.empty() ? "libcuda.so.1" : path;
  void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* reason = dlerror();
    return make_error(Code::kNoDriver, "", name + ": " + (reason ? reason : "cannot be opened"),
                      "install the NVIDIA driver, or use the simulated device");
  }
  std::shared_ptr<DriverApi> api(new DriverApi);
#define ATTNLOOM_DRIVER_LOOKUP(member, symbol, parameters)                                        \
  api->member = reinterpret_cast<CUresult(*) parameters>(dlsym(library, #symbol));                \
  if (!api->member) {                                                                             \
    return make_error(Code::kDriverTooOld, "", name + " has no " #symbol ", which CUDA 12.0 has", \
                      "update the driver");                                                       \
  }
  ATTNLOOM_DRIVER_FUNCTIONS(ATTNLOOM_DRIVER_LOOKUP)
#undef ATTNLOOM_DRIVER_LOOKUP
  api->func_load = reinterpret_cast<CUresult (*)(CUfunction)>(dlsym(library, "cuFuncLoad"));
  return std::shared_ptr<const DriverApi>(std::move(api));
}

Status driver_error(const DriverApi& api, CUresult result, const std::string& doing,
                    Code otherwise) {
  const char* name = nullptr;
  const char* text = nullptr;
  if (api.get_error_name(result, &name) != 0 || !name) name = "CUDA error";
  if (api.get_error_string(result, &text) != 0 || !text) text = "no text";
  const std::string cause = doing + ": " + name + " (" + std::to_string(result) + "): " + text;
  for (const ErrorRow& row : kErrors)
    if (row.result == result) return make_error(row.code, "", cause, row.remedy);
  return make_error(otherwise, "", cause);
}

}  // namespace attnloom
