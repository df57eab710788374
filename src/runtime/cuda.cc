// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda.h"

#include <array>
#include <optional>
#include <utility>

#include "base/process_id.h"
#include "runtime/cuda_handles.h"
#include "runtime/driver_policy.h"

namespace attnloom {
namespace {

// CUdevice_attribute, CUfunction_attribute, CUevent_flags and CUstreamCaptureStatus, by their
// documented numbers.
constexpr int kAttributeSmCount = 16;
constexpr int kAttributeMajor = 75;
constexpr int kAttributeMinor = 76;
constexpr int kAttributeSharedOptIn = 97;
constexpr int kFunctionMaxDynamicShared = 8;
constexpr unsigned kEventDisableTiming = 2;
constexpr CUresult kErrorCaptureImplicit = 906;

// CUresult of an image that cannot be used: INVALID_IMAGE, NO_BINARY_FOR_GPU, INVALID_PTX and, from
// INVALID_SOURCE to SHARED_OBJECT_INIT_FAILED, of code that cannot be made into a module. Anything
// else may be the context's trouble, which a cache entry has no part in.
bool refuses_image(CUresult result) {
  return result == 200 || result == 209 || result == 218 || (result >= 300 && result <= 303);
}

class CudaBackend : public Backend {
 public:
  explicit CudaBackend(Session session) : session_(std::move(session)), api_(*session_.api) {}
  ~CudaBackend() override {
    if (!retained_primary_ || session_.forked()) return;
    // The driver leaves a released context current: the next backend of this thread would be made
    // in a dead one.
    CUcontext current = nullptr;
    if (api_.ctx_get_current(&current) == 0 && current == home_) api_.ctx_set_current(nullptr);
    api_.primary_ctx_release(home_device_);
  }
  Status start();

  const DeviceInfo& device() const override { return info_; }
  Result<std::shared_ptr<LoadedKernel>> load(const Artifact& artifact, const std::string& entry,
                                             int shared_bytes) override;
  Status launch(LoadedKernel& kernel, const LaunchShape& shape, std::span<const std::byte> args,
                Stream stream) override;
  Status copy_in_async(DeviceAddress to, std::span<const std::byte> from, Stream stream) override;
  Result<TensorMap> encode_tensor_map(const TensorMapShape& shape) override;
  Result<std::unique_ptr<Event>> make_event() override;
  Status record(Event& event, Stream stream) override;
  Status wait(Event& event) override;
  Result<bool> is_capturing(Stream stream) override;
  Status synchronize(Stream stream) override;
  Result<DeviceAddress> allocate(std::size_t bytes, const std::string& label) override;
  Status release(DeviceAddress address) override;
  Status copy_in(DeviceAddress to, std::span<const std::byte> from) override;
  Status copy_out(std::span<std::byte> to, DeviceAddress from) override;
  Result<void*> allocate_host(std::size_t bytes) override;
  Status release_host(void* address) override;

 private:
  // `current`: the context that is current then.
  Status enter(CUcontext* current = nullptr);
  Result<CUdevice> device_of(CUcontext current);
  Status choose_home();
  Result<int> attribute(int number, CUdevice device);
  Result<Target> capability(CUdevice device);
  Status ready_on(CudaKernel& kernel, CUdevice device);
  Status load_error(CUresult result, const char* doing) const;

  Session session_;
  const DriverApi& api_;
  CUcontext home_ = nullptr;
  CUdevice home_device_ = 0;
  bool retained_primary_ = false;
  DeviceInfo info_;
};

// Every call begins here: the process is the one that began, and some context is current.
Status CudaBackend::enter(CUcontext* current) {
  if (session_.forked()) {
    return make_error(
        Code::kForked, "", "this process was forked from one that already used the device",
        "make the context, or first use the device, after the fork; or start workers with spawn");
  }
  CUcontext found = nullptr;
  ATTNLOOM_CHECK(session_.check(api_.ctx_get_current(&found), "cuCtxGetCurrent", Code::kNoDevice));
  if (current) *current = found ? found : home_;
  if (found) return ok_status();
  return session_.check(api_.ctx_set_current(home_), "cuCtxSetCurrent", Code::kNoDevice);
}

// REQUIRES: `current` is current. The driver need not be asked of the usual one.
Result<CUdevice> CudaBackend::device_of(CUcontext current) {
  if (current == home_) return home_device_;
  CUdevice device = 0;
  ATTNLOOM_CHECK(session_.check(api_.ctx_get_device(&device), "cuCtxGetDevice", Code::kNoDevice));
  return device;
}

Status CudaBackend::choose_home() {
  ATTNLOOM_CHECK(session_.check(api_.ctx_get_current(&home_), "cuCtxGetCurrent", Code::kNoDevice));
  if (home_)
    return session_.check(api_.ctx_get_device(&home_device_), "cuCtxGetDevice", Code::kNoDevice);
  ATTNLOOM_CHECK(session_.check(api_.device_get(&home_device_, 0), "cuDeviceGet", Code::kNoDevice));
  ATTNLOOM_CHECK(session_.check(api_.primary_ctx_retain(&home_, home_device_),
                                "cuDevicePrimaryCtxRetain", Code::kNoDevice));
  retained_primary_ = true;
  return session_.check(api_.ctx_set_current(home_), "cuCtxSetCurrent", Code::kNoDevice);
}

Result<int> CudaBackend::attribute(int number, CUdevice device) {
  int value = 0;
  ATTNLOOM_CHECK(session_.check(api_.device_get_attribute(&value, number, device),
                                "cuDeviceGetAttribute", Code::kNoDevice));
  return value;
}

Result<Target> CudaBackend::capability(CUdevice device) {
  ATTNLOOM_TRY(const int major, attribute(kAttributeMajor, device));
  ATTNLOOM_TRY(const int minor, attribute(kAttributeMinor, device));
  return own_target(major, minor);
}

Status CudaBackend::start() {
  ATTNLOOM_CHECK(session_.check(api_.init(0), "cuInit", Code::kNoDevice));
  ATTNLOOM_CHECK(session_.check(api_.driver_get_version(&info_.driver_version),
                                "cuDriverGetVersion", Code::kNoDriver));
  int count = 0;
  ATTNLOOM_CHECK(
      session_.check(api_.device_get_count(&count), "cuDeviceGetCount", Code::kNoDevice));
  if (count == 0) return make_error(Code::kNoDevice, "", "the driver reports no device");
  ATTNLOOM_CHECK(choose_home());
  char name[256] = {};
  ATTNLOOM_CHECK(session_.check(api_.device_get_name(name, sizeof(name) - 1, home_device_),
                                "cuDeviceGetName", Code::kNoDevice));
  info_.name = name;
  ATTNLOOM_TRY(info_.target, capability(home_device_));
  ATTNLOOM_TRY(info_.sm_count, attribute(kAttributeSmCount, home_device_));
  ATTNLOOM_TRY(info_.shared_bytes_per_cta, attribute(kAttributeSharedOptIn, home_device_));
  if (info_.target.number < 80) {
    return make_error(Code::kSpecUnsupported, "",
                      info_.name + " has compute capability " +
                          std::to_string(info_.target.number / 10) + "." +
                          std::to_string(info_.target.number % 10) +
                          "; the kernels need 8.0 (cp.async, bf16 mma)");
  }
  return check_driver(info_.driver_version, Fingerprint{}, info_.target);
}

Status CudaBackend::load_error(CUresult result, const char* doing) const {
  Status error = driver_error(api_, result, doing, Code::kLoadFailed);
  if (refuses_image(result)) error.path = kRefusedImage;
  return error;
}

Result<std::shared_ptr<LoadedKernel>> CudaBackend::load(const Artifact& artifact,
                                                        const std::string& entry,
                                                        int shared_bytes) {
  CUcontext current = nullptr;
  ATTNLOOM_CHECK(enter(&current));
  if (artifact.cubin.empty())
    return make_error(Code::kLoadFailed, "", "the artifact of " + entry + " holds no cubin");
  const std::optional<Target> target = parse_target(artifact.target);
  if (!target)
    return make_error(Code::kLoadFailed, "",
                      "the artifact names an unknown target: " + artifact.target);
  if (!cubin_fits(*target, info_.target)) {
    return make_error(Code::kArchMismatch, "$.target",
                      "a kernel for " + artifact.target + " cannot run on " + info_.name + " (" +
                          info_.target.name() + ")",
                      "leave the target out, or name the device's own");
  }
  ATTNLOOM_CHECK(check_driver(info_.driver_version, artifact.fingerprint, *target));
  if (shared_bytes > info_.shared_bytes_per_cta) {
    return make_error(Code::kResourceLimit, "$.tile",
                      entry + " needs " + std::to_string(shared_bytes) +
                          " bytes of shared memory; " + info_.name + " allows " +
                          std::to_string(info_.shared_bytes_per_cta));
  }
  CUlibrary library = nullptr;
  const CUresult result = api_.library_load_data(&library, artifact.cubin.data(), nullptr, nullptr,
                                                 0, nullptr, nullptr, 0);
  if (result != 0) return load_error(result, "cuLibraryLoadData");
  auto loaded = std::make_shared<CudaKernel>(session_, library, nullptr, *target, shared_bytes);
  ATTNLOOM_CHECK(session_.check(api_.library_get_kernel(&loaded->kernel, library, entry.c_str()),
                                "cuLibraryGetKernel", Code::kLoadFailed));
  ATTNLOOM_TRY(const CUdevice device, device_of(current));
  ATTNLOOM_CHECK(ready_on(*loaded, device));
  // Lazy loading would otherwise load the code at the first launch, which may lie inside a stream
  // capture.
  CUfunction function = nullptr;
  if (const CUresult got = api_.kernel_get_function(&function, loaded->kernel); got != 0)
    return load_error(got, "cuKernelGetFunction");
  if (api_.func_load) {
    if (const CUresult got = api_.func_load(function); got != 0)
      return load_error(got, "cuFuncLoad");
  }
  return std::shared_ptr<LoadedKernel>(std::move(loaded));
}

// A caller may launch the same kernel on another device of the process: the attribute is per
// device.
Status CudaBackend::ready_on(CudaKernel& kernel, CUdevice device) {
  const std::uint64_t bit = device < 64 ? std::uint64_t{1} << device : 0;
  if (kernel.devices_ready.load(std::memory_order_acquire) & bit) return ok_status();
  ATTNLOOM_TRY(const Target there, capability(device));
  if (!cubin_fits(kernel.target, there)) {
    return make_error(Code::kArchMismatch, "",
                      "the current device is " + there.name() + "; this kernel was compiled for " +
                          kernel.target.name(),
                      "make the context of the kernel's device current, or open the spec with this "
                      "device current");
  }
  ATTNLOOM_CHECK(
      session_.check(api_.kernel_set_attribute(kFunctionMaxDynamicShared, kernel.shared_bytes,
                                               kernel.kernel, device),
                     "cuKernelSetAttribute", Code::kResourceLimit));
  kernel.devices_ready.fetch_or(bit, std::memory_order_release);
  return ok_status();
}

Status CudaBackend::launch(LoadedKernel& kernel, const LaunchShape& shape,
                           std::span<const std::byte> args, Stream stream) {
  CUcontext current = nullptr;
  ATTNLOOM_CHECK(enter(&current));
  CudaKernel& loaded = static_cast<CudaKernel&>(kernel);
  ATTNLOOM_TRY(const CUdevice device, device_of(current));
  ATTNLOOM_CHECK(ready_on(loaded, device));
  void* parameters[] = {const_cast<std::byte*>(args.data())};
  // The driver takes a CUkernel wherever it takes a CUfunction and picks the function of the
  // current context.
  CUfunction function = reinterpret_cast<CUfunction>(loaded.kernel);
  return session_.check(
      api_.launch_kernel(function, shape.grid, 1, 1, shape.block, 1, 1, shape.shared_bytes,
                         static_cast<CUstream>(stream), parameters, nullptr),
      "cuLaunchKernel", Code::kLaunch);
}

Status CudaBackend::copy_in_async(DeviceAddress to, std::span<const std::byte> from,
                                  Stream stream) {
  ATTNLOOM_CHECK(enter());
  return session_.check(
      api_.memcpy_htod_async(to, from.data(), from.size(), static_cast<CUstream>(stream)),
      "cuMemcpyHtoDAsync", Code::kLaunch);
}

Result<TensorMap> CudaBackend::encode_tensor_map(const TensorMapShape& shape) {
  ATTNLOOM_CHECK(check_tensor_map(shape));
  ATTNLOOM_CHECK(enter());
  // CU_TENSOR_MAP_DATA_TYPE_UINT8, 16, 32 and 64: a copy needs the size only.
  const int type = shape.element_bytes == 8 ? 4 : shape.element_bytes / 2;
  const std::array<std::uint32_t, 5> dense = {1, 1, 1, 1, 1};
  constexpr int kNotInterleaved = 0, kPromoteTo256Bytes = 3, kFillZeros = 0;
  alignas(64) TensorMap map;  // what the driver asks of its address
  const CUresult result = api_.tensor_map_encode_tiled(
      map.bytes.data(), type, static_cast<unsigned>(shape.rank),
      reinterpret_cast<void*>(shape.address), shape.dims.data(), shape.stride_bytes.data(),
      shape.box.data(), dense.data(), kNotInterleaved, static_cast<int>(shape.swizzle),
      kPromoteTo256Bytes, kFillZeros);
  ATTNLOOM_CHECK(session_.check(result, "cuTensorMapEncodeTiled", Code::kArgumentInvalid));
  return map;
}

Result<std::unique_ptr<Event>> CudaBackend::make_event() {
  ATTNLOOM_CHECK(enter());
  CUevent event = nullptr;
  ATTNLOOM_CHECK(session_.check(api_.event_create(&event, kEventDisableTiming), "cuEventCreate",
                                Code::kLaunch));
  return std::unique_ptr<Event>(std::make_unique<CudaEvent>(session_, event));
}

Status CudaBackend::record(Event& event, Stream stream) {
  ATTNLOOM_CHECK(enter());
  return session_.check(
      api_.event_record(static_cast<CudaEvent&>(event).event, static_cast<CUstream>(stream)),
      "cuEventRecord", Code::kLaunch);
}

Status CudaBackend::wait(Event& event) {
  ATTNLOOM_CHECK(enter());
  return session_.check(api_.event_synchronize(static_cast<CudaEvent&>(event).event),
                        "cuEventSynchronize", Code::kLaunch);
}

Result<bool> CudaBackend::is_capturing(Stream stream) {
  ATTNLOOM_CHECK(enter());
  int status = 0;
  const CUresult result = api_.stream_is_capturing(static_cast<CUstream>(stream), &status);
  // Asked about the default stream while another stream of the context captures: what follows would
  // break that capture.
  if (result == kErrorCaptureImplicit) return true;
  ATTNLOOM_CHECK(session_.check(result, "cuStreamIsCapturing", Code::kLaunch));
  return status != 0;
}

Status CudaBackend::synchronize(Stream stream) {
  ATTNLOOM_CHECK(enter());
  return session_.check(api_.stream_synchronize(static_cast<CUstream>(stream)),
                        "cuStreamSynchronize", Code::kLaunch);
}

Result<DeviceAddress> CudaBackend::allocate(std::size_t bytes, const std::string& label) {
  ATTNLOOM_CHECK(enter());
  CUdeviceptr address = 0;
  const std::string doing = "cuMemAlloc of " + std::to_string(bytes) + " bytes for " + label;
  ATTNLOOM_CHECK(
      session_.check(api_.mem_alloc(&address, bytes), doing.c_str(), Code::kOutOfMemory));
  return DeviceAddress{address};
}

Status CudaBackend::release(DeviceAddress address) {
  ATTNLOOM_CHECK(enter());
  return session_.check(api_.mem_free(address), "cuMemFree", Code::kArgumentInvalid);
}

// The driver hands out whole pages.
Result<void*> CudaBackend::allocate_host(std::size_t bytes) {
  ATTNLOOM_CHECK(enter());
  void* address = nullptr;
  const std::string doing = "cuMemAllocHost of " + std::to_string(bytes) + " bytes";
  ATTNLOOM_CHECK(
      session_.check(api_.mem_alloc_host(&address, bytes), doing.c_str(), Code::kOutOfMemory));
  return address;
}

Status CudaBackend::release_host(void* address) {
  ATTNLOOM_CHECK(enter());
  return session_.check(api_.mem_free_host(address), "cuMemFreeHost", Code::kArgumentInvalid);
}

Status CudaBackend::copy_in(DeviceAddress to, std::span<const std::byte> from) {
  ATTNLOOM_CHECK(enter());
  return session_.check(api_.memcpy_htod(to, from.data(), from.size()), "cuMemcpyHtoD",
                        Code::kLaunch);
}

Status CudaBackend::copy_out(std::span<std::byte> to, DeviceAddress from) {
  ATTNLOOM_CHECK(enter());
  return session_.check(api_.memcpy_dtoh(to.data(), from, to.size()), "cuMemcpyDtoH",
                        Code::kLaunch);
}

}  // namespace

Target own_target(int major, int minor) {
  return {major * 10 + minor, major == 9 && minor == 0 ? 'a' : '\0'};
}

Result<std::unique_ptr<Backend>> make_cuda_backend(const std::string& library) {
  ATTNLOOM_TRY(std::shared_ptr<const DriverApi> api, DriverApi::open(library));
  auto backend = std::make_unique<CudaBackend>(Session{std::move(api), process_id()});
  ATTNLOOM_CHECK(backend->start());
  return std::unique_ptr<Backend>(std::move(backend));
}

}  // namespace attnloom
