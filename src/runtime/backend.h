// SPDX-License-Identifier: Apache-2.0
// Backend: a device that loads artifacts and launches kernels, real (cuda.h) or simulated
// (sim_backend.h).
//
// Thread-safe. The cuda backend works in the caller's current context (it makes the primary context
// of device 0 current only when there is none) and leaves it current; it allocates device memory
// only in allocate(). After a fork in the child every call returns FORKED. Streams are the
// caller's; nullptr is the default stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/tensor_map.h"
#include "compile/artifact.h"
#include "spec/types.h"

namespace attnloom {

using DeviceAddress = std::uint64_t;
using Stream = void*;  // a CUstream; the simulator has one queue and takes any value

struct DeviceInfo {
  std::string name;
  Target target;  // what its kernels are compiled for: sm_90a on a 9.0 device
  int sm_count = 0;
  int shared_bytes_per_cta = 0;
  int driver_version = 0;  // 13000; 0 for the simulator
  bool simulated = false;
};

// A kernel in the device's memory. Destroying it unloads it: only when no launch of it is pending.
class LoadedKernel {
 public:
  virtual ~LoadedKernel() = default;
};

// A place in a stream that the host can wait for.
class Event {
 public:
  virtual ~Event() = default;
};

struct LaunchShape {
  unsigned grid = 1;   // CTAs, in x only
  unsigned block = 1;  // threads
  unsigned shared_bytes = 0;
};

// The path of an error of Backend::load that means: the driver refuses this image, whoever asks.
inline constexpr const char* kRefusedImage = "cubin";

inline constexpr std::size_t kHostAlignment = 64;

class Backend {
 public:
  virtual ~Backend() = default;
  virtual const DeviceInfo& device() const = 0;

  // cuda loads the cubin, sim the PTX. `shared_bytes` is the dynamic shared memory its launches
  // will ask for. Errors: LOAD_FAILED, ARCH_MISMATCH, DRIVER_TOO_OLD, RESOURCE_LIMIT.
  virtual Result<std::shared_ptr<LoadedKernel>> load(const Artifact& artifact,
                                                     const std::string& entry,
                                                     int shared_bytes) = 0;
  // Asynchronous. `args` is the one parameter of every kernel here, a struct of loom/plan.cuh.
  virtual Status launch(LoadedKernel& kernel, const LaunchShape& shape,
                        std::span<const std::byte> args, Stream stream) = 0;
  // The host bytes must stay as they are until the copy is done (an event tells).
  virtual Status copy_in_async(DeviceAddress to, std::span<const std::byte> from,
                               Stream stream) = 0;
  // The device's own form of a tensor map, for a kernel's parameters. Nothing is allocated.
  // Errors: ARGUMENT_INVALID with the field as path, DRIVER_TOO_OLD.
  virtual Result<TensorMap> encode_tensor_map(const TensorMapShape& shape) = 0;
  virtual Result<std::unique_ptr<Event>> make_event() = 0;
  virtual Status record(Event& event, Stream stream) = 0;
  virtual Status wait(Event& event) = 0;  // an event never recorded is already over
  virtual Result<bool> is_capturing(Stream stream) = 0;
  virtual Status synchronize(Stream stream) = 0;

  // For tools, examples and tests; the engine never calls these. Synchronous.
  virtual Result<DeviceAddress> allocate(std::size_t bytes, const std::string& label) = 0;
  virtual Status release(DeviceAddress address) = 0;
  virtual Status copy_in(DeviceAddress to, std::span<const std::byte> from) = 0;
  virtual Status copy_out(std::span<std::byte> to, DeviceAddress from) = 0;
  // Host memory of which copies are asynchronous, aligned to kHostAlignment.
  virtual Result<void*> allocate_host(std::size_t bytes) = 0;
  virtual Status release_host(void* address) = 0;
};

}  // namespace attnloom
