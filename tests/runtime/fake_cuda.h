// SPDX-License-Identifier: Apache-2.0
// A libcuda for tests: the calls that runtime/driver_api.h lists, over two made-up devices (0:
// capability 12.0, 1: capability 8.6). It counts calls, remembers the last launch and fails on
// request. Built as a shared object of its own and reached by path. The functions below are what a
// test looks up in it.
#pragma once

#include <cstddef>

extern "C" {
void fake_cuda_reset();
int fake_cuda_calls(const char* name);              // "" = all together
void fake_cuda_fail(const char* name, int result);  // every later call of `name`; 0 = no longer
void fake_cuda_set_driver_version(int version);
void fake_cuda_set_capture(
    int status);  // of every stream; -1: the implicit capture error on the default stream
int fake_cuda_module_loads();  // distinct (library, context) pairs that a launch or a function
                               // look-up needed

struct FakeLaunch {
  int device;
  unsigned grid, block, shared_bytes;
  void* stream;
  unsigned long long first_argument;
};
FakeLaunch fake_cuda_last_launch();
int fake_cuda_shared_attribute(int device);  // the last value set for it
void* fake_cuda_make_context(
    int device);  // current for this thread afterwards, as cuCtxCreate does
void* fake_cuda_current();
void fake_cuda_set_current(void* context);
}
