// SPDX-License-Identifier: Apache-2.0
// The test's side of the fake libcuda: opened by the path that CMake gives, reset at each
// construction.
#pragma once

#include <dlfcn.h>

#include <catch2/catch.hpp>
#include <string>

#include "runtime/fake_cuda.h"

namespace attnloom {

class FakeDriver {
 public:
  FakeDriver() : library_(dlopen(path().c_str(), RTLD_NOW | RTLD_LOCAL)) {
    REQUIRE(library_ != nullptr);
    find<decltype(&fake_cuda_reset)>("fake_cuda_reset")();
  }
  static std::string path() { return ATTNLOOM_FAKE_CUDA; }

  int calls(const char* name) const {
    return find<decltype(&fake_cuda_calls)>("fake_cuda_calls")(name);
  }
  int all_calls() const { return calls(""); }
  void fail(const char* name, int result) {
    find<decltype(&fake_cuda_fail)>("fake_cuda_fail")(name, result);
  }
  void set_driver_version(int version) {
    find<decltype(&fake_cuda_set_driver_version)>("fake_cuda_set_driver_version")(version);
  }
  void set_capture(int status) {
    find<decltype(&fake_cuda_set_capture)>("fake_cuda_set_capture")(status);
  }
  int module_loads() const {
    return find<decltype(&fake_cuda_module_loads)>("fake_cuda_module_loads")();
  }
  FakeLaunch last_launch() const {
    return find<decltype(&fake_cuda_last_launch)>("fake_cuda_last_launch")();
  }
  int shared_attribute(int device) const {
    return find<decltype(&fake_cuda_shared_attribute)>("fake_cuda_shared_attribute")(device);
  }
  void* make_context(int device) {
    return find<decltype(&fake_cuda_make_context)>("fake_cuda_make_context")(device);
  }
  void* current() const { return find<decltype(&fake_cuda_current)>("fake_cuda_current")(); }
  void set_current(void* context) {
    find<decltype(&fake_cuda_set_current)>("fake_cuda_set_current")(context);
  }

 private:
  template <class Function>
  Function find(const char* name) const {
    return reinterpret_cast<Function>(dlsym(library_, name));
  }
  void* library_;
};

}  // namespace attnloom
