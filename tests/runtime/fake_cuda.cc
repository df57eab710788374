// SPDX-License-Identifier: Apache-2.0
#include "runtime/fake_cuda.h"

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#define FAKE_CUDA extern "C" __attribute__((visibility("default")))

namespace {

struct Context {
  int device;
};

struct State {
  std::mutex mutex;
  std::map<std::string, int> calls;
  std::map<std::string, int> failures;
  int driver_version = 13000;
  int capture = 0;
  pid_t initialised_by = 0;
  Context primary[2] = {{0}, {1}};
  std::deque<Context> made;  // by fake_cuda_make_context; they stay
  std::set<std::pair<void*, void*>> module_loads;
  std::map<int, int> shared_attribute;
  FakeLaunch last = {};
};

State& state() {
  static State* made = new State;
  return *made;
}

thread_local Context* current = nullptr;

// Counts the call and says what it must return.
int enter(const char* name) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  ++s.calls[name];
  const auto failure = s.failures.find(name);
  if (failure != s.failures.end() && failure->second != 0) return failure->second;
  if (std::string(name) != "cuInit" && s.initialised_by != getpid()) return 3;
  return 0;
}

}  // namespace

#define FAKE_ENTER(name) \
  if (const int result = enter(name); result != 0) return result

FAKE_CUDA void fake_cuda_reset() {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.calls.clear();
  s.failures.clear();
  s.driver_version = 13000;
  s.capture = 0;
  s.initialised_by = 0;
  s.module_loads.clear();
  s.shared_attribute.clear();
  s.last = {};
  current = nullptr;
}

FAKE_CUDA int fake_cuda_calls(const char* name) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  if (*name) return s.calls[name];
  int sum = 0;
  for (const auto& [each, calls] : s.calls) sum += calls;
  return sum;
}

FAKE_CUDA void fake_cuda_fail(const char* name, int result) {
  const std::lock_guard lock(state().mutex);
  state().failures[name] = result;
}
FAKE_CUDA void fake_cuda_set_driver_version(int version) {
  state().driver_version = version;
}
FAKE_CUDA void fake_cuda_set_capture(int status) {
  state().capture = status;
}
FAKE_CUDA int fake_cuda_module_loads() {
  return static_cast<int>(state().module_loads.size());
}
FAKE_CUDA FakeLaunch fake_cuda_last_launch() {
  return state().last;
}
FAKE_CUDA int fake_cuda_shared_attribute(int device) {
  return state().shared_attribute[device];
}
FAKE_CUDA void* fake_cuda_make_context(int device) {
  current = &state().made.emplace_back(Context{device});
  state().initialised_by = getpid();
  return current;
}
FAKE_CUDA void* fake_cuda_current() {
  return current;
}
FAKE_CUDA void fake_cuda_set_current(void* context) {
  current = static_cast<Context*>(context);
}

FAKE_CUDA int cuInit(unsigned) {
  FAKE_ENTER("cuInit");
  State& s = state();
  if (s.initialised_by != 0 && s.initialised_by != getpid()) return 3;  // the parent did
  s.initialised_by = getpid();
  return 0;
}
FAKE_CUDA int cuDriverGetVersion(int* version) {
  FAKE_ENTER("cuDriverGetVersion");
  *version = state().driver_version;
  return 0;
}
FAKE_CUDA int cuGetErrorName(int error, const char** text) {
  *text = error == 719   ? "CUDA_ERROR_LAUNCH_FAILED"
          : error == 209 ? "CUDA_ERROR_NO_BINARY_FOR_GPU"
                         : "CUDA_ERROR_FAKE";
  return 0;
}
FAKE_CUDA int cuGetErrorString(int, const char** text) {
  *text = "the fake driver was told to fail";
  return 0;
}
FAKE_CUDA int cuDeviceGetCount(int* count) {
  FAKE_ENTER("cuDeviceGetCount");
  *count = 2;
  return 0;
}
FAKE_CUDA int cuDeviceGet(int* device, int ordinal) {
  FAKE_ENTER("cuDeviceGet");
  *device = ordinal;
  return 0;
}
FAKE_CUDA int cuDeviceGetName(char* name, int bytes, int device) {
  FAKE_ENTER("cuDeviceGetName");
  std::strncpy(name, device == 0 ? "fake 12.0" : "fake 8.6", static_cast<std::size_t>(bytes));
  return 0;
}
FAKE_CUDA int cuDeviceGetAttribute(int* value, int attribute, int device) {
  FAKE_ENTER("cuDeviceGetAttribute");
  const std::map<int, std::pair<int, int>> values = {
      {16, {170, 84}}, {75, {12, 8}}, {76, {0, 6}}, {97, {101376, 101376}}};
  const auto found = values.find(attribute);
  if (found == values.end()) return 1;
  *value = device == 0 ? found->second.first : found->second.second;
  return 0;
}
FAKE_CUDA int cuDevicePrimaryCtxRetain(void** context, int device) {
  FAKE_ENTER("cuDevicePrimaryCtxRetain");
  *context = &state().primary[device];
  return 0;
}
FAKE_CUDA int cuDevicePrimaryCtxRelease_v2(int) {
  FAKE_ENTER("cuDevicePrimaryCtxRelease");
  return 0;
}
FAKE_CUDA int cuCtxGetCurrent(void** context) {
  FAKE_ENTER("cuCtxGetCurrent");
  *context = current;
  return 0;
}
FAKE_CUDA int cuCtxSetCurrent(void* context) {
  FAKE_ENTER("cuCtxSetCurrent");
  current = static_cast<Context*>(context);
  return 0;
}
FAKE_CUDA int cuCtxGetDevice(int* device) {
  FAKE_ENTER("cuCtxGetDevice");
  if (!current) return 201;
  *device = current->device;
  return 0;
}
FAKE_CUDA int cuLibraryLoadData(void** library, const void*, int*, void**, unsigned, int*, void**,
                                unsigned) {
  FAKE_ENTER("cuLibraryLoadData");
  *library = new int(0);
  return 0;
}
FAKE_CUDA int cuLibraryUnload(void* library) {
  FAKE_ENTER("cuLibraryUnload");
  delete static_cast<int*>(library);
  return 0;
}
FAKE_CUDA int cuLibraryGetKernel(void** kernel, void* library, const char*) {
  FAKE_ENTER("cuLibraryGetKernel");
  *kernel = library;
  return 0;
}
FAKE_CUDA int cuKernelGetFunction(void** function, void* kernel) {
  FAKE_ENTER("cuKernelGetFunction");
  *function = kernel;
  const std::lock_guard lock(state().mutex);
  state().module_loads.insert({kernel, current});
  return 0;
}
FAKE_CUDA int cuKernelSetAttribute(int attribute, int value, void*, int device) {
  FAKE_ENTER("cuKernelSetAttribute");
  if (attribute != 8) return 1;
  const std::lock_guard lock(state().mutex);
  state().shared_attribute[device] = value;
  return 0;
}
FAKE_CUDA int cuLaunchKernel(void* function, unsigned grid, unsigned, unsigned, unsigned block,
                             unsigned, unsigned, unsigned shared, void* stream, void** parameters,
                             void**) {
  FAKE_ENTER("cuLaunchKernel");
  if (!current) return 201;
  const std::lock_guard lock(state().mutex);
  state().module_loads.insert({function, current});
  state().last = {current->device, grid, block, shared, stream, 0};
  std::memcpy(&state().last.first_argument, parameters[0], sizeof(unsigned long long));
  return 0;
}
FAKE_CUDA int cuStreamSynchronize(void*) {
  FAKE_ENTER("cuStreamSynchronize");
  return 0;
}
FAKE_CUDA int cuStreamIsCapturing(void* stream, int* status) {
  FAKE_ENTER("cuStreamIsCapturing");
  if (state().capture < 0) return stream ? 0 : 906;
  *status = state().capture;
  return 0;
}
FAKE_CUDA int cuEventCreate(void** event, unsigned) {
  FAKE_ENTER("cuEventCreate");
  *event = new int(0);
  return 0;
}
FAKE_CUDA int cuEventDestroy_v2(void* event) {
  FAKE_ENTER("cuEventDestroy");
  delete static_cast<int*>(event);
  return 0;
}
FAKE_CUDA int cuEventRecord(void*, void*) {
  FAKE_ENTER("cuEventRecord");
  return 0;
}
FAKE_CUDA int cuEventSynchronize(void*) {
  FAKE_ENTER("cuEventSynchronize");
  return 0;
}
FAKE_CUDA int cuMemAlloc_v2(unsigned long long* address, std::size_t bytes) {
  FAKE_ENTER("cuMemAlloc");
  *address =
      reinterpret_cast<unsigned long long>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
  return 0;
}
FAKE_CUDA int cuMemFree_v2(unsigned long long address) {
  FAKE_ENTER("cuMemFree");
  std::free(reinterpret_cast<void*>(address));
  return 0;
}
FAKE_CUDA int cuMemAllocHost_v2(void** address, std::size_t bytes) {
  FAKE_ENTER("cuMemAllocHost");
  *address = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  return 0;
}
FAKE_CUDA int cuMemFreeHost(void* address) {
  FAKE_ENTER("cuMemFreeHost");
  std::free(address);
  return 0;
}
FAKE_CUDA int cuMemcpyHtoDAsync_v2(unsigned long long to, const void* from, std::size_t bytes,
                                   void*) {
  FAKE_ENTER("cuMemcpyHtoDAsync");
  std::memcpy(reinterpret_cast<void*>(to), from, bytes);
  return 0;
}
// The map holds what was asked for, in the order of the arguments.
FAKE_CUDA int cuTensorMapEncodeTiled(void* map, int type, unsigned rank, void* address,
                                     const std::uint64_t* dims, const std::uint64_t* stride_bytes,
                                     const std::uint32_t* box, const std::uint32_t*, int,
                                     int swizzle, int, int) {
  FAKE_ENTER("cuTensorMapEncodeTiled");
  const std::uint64_t asked[] = {static_cast<std::uint64_t>(type),
                                 rank,
                                 reinterpret_cast<std::uint64_t>(address),
                                 dims[rank - 1],
                                 stride_bytes[0],
                                 box[0],
                                 static_cast<std::uint64_t>(swizzle)};
  std::memcpy(map, asked, sizeof(asked));
  return 0;
}
FAKE_CUDA int cuMemcpyHtoD_v2(unsigned long long to, const void* from, std::size_t bytes) {
  FAKE_ENTER("cuMemcpyHtoD");
  std::memcpy(reinterpret_cast<void*>(to), from, bytes);
  return 0;
}
FAKE_CUDA int cuMemcpyDtoH_v2(void* to, unsigned long long from, std::size_t bytes) {
  FAKE_ENTER("cuMemcpyDtoH");
  std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
  return 0;
}
