// SPDX-License-Identifier: Apache-2.0
// What the CUDA backend holds of the driver, each given back by the process that got it and by no
// fork of that.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/process_id.h"
#include "runtime/backend.h"
#include "runtime/driver_api.h"

namespace attnloom {

// Who may call the driver: the process that initialised it.
struct Session {
  std::shared_ptr<const DriverApi> api;
  pid_t pid = 0;
  bool forked() const { return process_id() != pid; }

  Status check(CUresult result, const char* doing, Code otherwise) const {
    return result == 0 ? ok_status() : driver_error(*api, result, doing, otherwise);
  }
};

class CudaKernel : public LoadedKernel {
 public:
  CudaKernel(Session session, CUlibrary library, CUkernel kernel, Target target, int shared_bytes)
      : kernel(kernel),
        target(target),
        shared_bytes(shared_bytes),
        session_(std::move(session)),
        library_(library) {}
  ~CudaKernel() override {
    // In a forked child the handle means nothing, and the call would hang.
    if (!session_.forked()) session_.api->library_unload(library_);
  }

  CUkernel kernel;
  Target target;
  int shared_bytes;
  // Bit d: device d accepts this kernel's shared memory. Devices past 63 are set up at every
  // launch.
  std::atomic<std::uint64_t> devices_ready{0};

 private:
  Session session_;
  CUlibrary library_;
};

class CudaEvent : public Event {
 public:
  CudaEvent(Session session, CUevent event) : event(event), session_(std::move(session)) {}
  ~CudaEvent() override {
    if (!session_.forked()) session_.api->event_destroy(event);
  }
  CUevent event;

 private:
  Session session_;
};

}  // namespace attnloom
