// SPDX-License-Identifier: Apache-2.0
#include "compile/deep_stack.h"

#include <pthread.h>

#include <cstring>
#include <exception>
#include <string>

namespace attnloom {
namespace {

struct Call {
  const std::function<void()>& run;
  std::exception_ptr thrown;
};

void* run_call(void* argument) {
  Call& call = *static_cast<Call*>(argument);
  try {
    call.run();
  } catch (...) {
    call.thrown = std::current_exception();
  }
  return nullptr;
}

}  // namespace

Status run_on_deep_stack(const std::function<void()>& run) {
  Call call{run, nullptr};
  pthread_t thread;
  pthread_attr_t attributes;
  int error = ::pthread_attr_init(&attributes);
  if (error == 0) {
    error = ::pthread_attr_setstacksize(&attributes, kDeepStackBytes);
    if (error == 0) error = ::pthread_create(&thread, &attributes, run_call, &call);
    ::pthread_attr_destroy(&attributes);
  }
  if (error != 0) {
    return make_error(Code::kOutOfMemory, "",
                      "no thread with a stack of " + std::to_string(kDeepStackBytes >> 20) +
                          " MiB of address space for the compiler: " + std::strerror(error),
                      "raise the limits on address space and threads (ulimit -v, -u)");
  }
  ::pthread_join(thread, nullptr);
  if (call.thrown) std::rethrow_exception(call.thrown);
  return ok_status();
}

}  // namespace attnloom
