// SPDX-License-Identifier: Apache-2.0
// The simulated device as a Backend: one queue, asynchronous copies that are performed as late as
// the rules of a stream allow (at the next launch, synchronize, wait or synchronous call), so that
// host memory reused too early shows.
//
// Thread-safe: one call at a time. What launches find and count is kept until take_report().
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "runtime/backend.h"
#include "sim/device.h"

namespace attnloom {

class SimBackend : public Backend {
 public:
  SimBackend(const sim::Profile& profile, const sim::Options& options);
  ~SimBackend() override;

  // Findings and counters of all launches since the last call.
  sim::Report take_report();
  // Order of warps and CTAs from the next launch on.
  void set_seed(std::uint64_t seed);

  const DeviceInfo& device() const override;
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
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace attnloom
