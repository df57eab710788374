// SPDX-License-Identifier: Apache-2.0
// A device whose launches can be captured and replayed: a CUDA stream and its graphs, or the
// simulated device, which records launches as a graph would freeze them (kernel, grid, argument
// bytes) and makes them again. One thread at a time; the engine owns the backend and outlives this.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "runtime/backend.h"

namespace attnloom::testing {

class GraphDevice {
 public:
  // As on_cuda() says.
  static std::unique_ptr<GraphDevice> make();
  virtual ~GraphDevice() = default;

  // For EngineOptions, once, before all that follows.
  virtual Result<std::unique_ptr<Backend>> make_backend() = 0;
  virtual Stream stream() = 0;
  virtual Status begin_capture() = 0;
  virtual Status end_capture() = 0;
  // All that was captured, in order.
  virtual Status replay() = 0;
  // Of the simulated device: order of warps and CTAs; what it found since the last call, "" if
  // nothing.
  virtual void set_seed(std::uint64_t seed) = 0;
  virtual std::string take_finding() = 0;
};

}  // namespace attnloom::testing
