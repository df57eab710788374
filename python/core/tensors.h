// SPDX-License-Identifier: Apache-2.0
// The tensors of one launch, from Python to the kernel: borrowed, looked at for where they lie, and
// on the simulated device copied there and back.
//
// Lives for one call. Made, filled and destroyed under the GIL; launch() needs none.
#pragma once

#include <nanobind/nanobind.h>

#include <attnloom/attnloom.hpp>
#include <cstdint>
#include <vector>

#include "python/core/dlpack.h"
#include "python/core/objects.h"
#include "python/core/staging.h"

namespace attnloom::python {

enum class Use { kRead, kWritten };

class LaunchTensors {
 public:
  // `first`: whose device the others must share, for refusals.
  LaunchTensors(ContextObject& context, const char* first);

  // None leaves `to` a tensor without dtype, which the library takes for one that was not given.
  // REQUIRES: `to` and `name` stay where they are until launch() is over.
  void read(nb::handle object, const char* name, Use use, alm_tensor* to);

  // The address of the stream to launch on: that of `given`, which is an address, a stream of torch
  // or cupy, or None: the current one of the framework that the first tensor is of.
  std::uintptr_t stream(nb::handle given, nb::handle first_tensor);

  // Calls make_launch() once every `to` holds an address of the device.
  template <class MakeLaunch>
  void launch(std::uintptr_t stream, MakeLaunch&& make_launch) {
    if (!simulated_) return make_launch();
    Staging staging(context_.get());
    for (const Part& part : parts_) staging.add(part.to, part.name, part.use == Use::kWritten);
    staging.copy_in();
    make_launch();
    context_.context().synchronize(reinterpret_cast<void*>(stream));
    staging.copy_out();
  }

 private:
  struct Part {
    alm_tensor* to;
    const char* name;
    Use use;
  };
  void check_place(const Borrowed& borrowed, const char* name);

  ContextObject& context_;
  const char* first_;
  bool simulated_;
  const ExchangeApi* api_ = nullptr;  // of the first tensor
  int device_id_ = -1;                // of the first tensor
  std::vector<nb::object> held_;      // what keeps the memory of each tensor
  std::vector<Part> parts_;
};

}  // namespace attnloom::python
