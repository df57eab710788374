// SPDX-License-Identifier: Apache-2.0
#include "abi/boundary.h"
#include "abi/convert.h"
#include "abi/handles.h"
#include "runtime/sim_backend.h"

using namespace attnloom;

namespace {

Result<Backend*> device_of(alm_context* context) {
  ATTNLOOM_CHECK(check_given(context, "context"));
  return context->engine->backend();
}

// What the simulator saw since the last call, as an error that names the first finding.
Status check_findings(Backend& device) {
  SimBackend* simulator = dynamic_cast<SimBackend*>(&device);
  if (!simulator) return ok_status();
  const sim::Report found = simulator->take_report();
  if (found.findings.empty()) return ok_status();
  const sim::Finding& first = found.findings.front();
  std::string cause = "the simulator found " + first.kind + " in " + first.kernel + " at " +
                      first.place + ": " + first.detail + " (" + std::to_string(first.count) +
                      " times";
  if (found.findings.size() > 1)
    cause += ", " + std::to_string(found.findings.size() - 1) + " other findings";
  return make_error(Code::kLaunch, first.place, cause + ")");
}

}  // namespace

alm_code alm_memory_allocate(alm_context* context, size_t bytes, const char* label, void** address,
                             alm_error** error) {
  return guarded(error, [&]() -> Status {
    ATTNLOOM_CHECK(check_given(address, "address"));
    *address = nullptr;
    if (bytes == 0) return argument_error("bytes", "must be 1 or more, given 0");
    ATTNLOOM_TRY(Backend * device, device_of(context));
    ATTNLOOM_TRY(const DeviceAddress made, device->allocate(bytes, label ? label : "buffer"));
    *address = reinterpret_cast<void*>(static_cast<std::uintptr_t>(made));
    return ok_status();
  });
}

alm_code alm_memory_free(alm_context* context, void* address, alm_error** error) {
  return guarded(error, [&]() -> Status {
    ATTNLOOM_TRY(Backend * device, device_of(context));
    return address ? device->release(address_of(address)) : ok_status();
  });
}

alm_code alm_memory_copy_in(alm_context* context, void* to, const void* from, size_t bytes,
                            alm_error** error) {
  return guarded(error, [&]() -> Status {
    ATTNLOOM_TRY(Backend * device, device_of(context));
    if (bytes == 0) return ok_status();
    ATTNLOOM_CHECK(check_given(from, "from"));
    return device->copy_in(address_of(to), {static_cast<const std::byte*>(from), bytes});
  });
}

alm_code alm_memory_copy_out(alm_context* context, void* to, const void* from, size_t bytes,
                             alm_error** error) {
  return guarded(error, [&]() -> Status {
    ATTNLOOM_TRY(Backend * device, device_of(context));
    if (bytes == 0) return ok_status();
    ATTNLOOM_CHECK(check_given(to, "to"));
    return device->copy_out({static_cast<std::byte*>(to), bytes}, address_of(from));
  });
}

alm_code alm_memory_allocate_host(alm_context* context, size_t bytes, void** address,
                                  alm_error** error) {
  return guarded(error, [&]() -> Status {
    ATTNLOOM_CHECK(check_given(address, "address"));
    *address = nullptr;
    if (bytes == 0) return argument_error("bytes", "must be 1 or more, given 0");
    ATTNLOOM_TRY(Backend * device, device_of(context));
    ATTNLOOM_TRY(*address, device->allocate_host(bytes));
    return ok_status();
  });
}

alm_code alm_memory_free_host(alm_context* context, void* address, alm_error** error) {
  return guarded(error, [&]() -> Status {
    ATTNLOOM_TRY(Backend * device, device_of(context));
    return address ? device->release_host(address) : ok_status();
  });
}

alm_code alm_synchronize(alm_context* context, void* stream, alm_error** error) {
  return guarded(error, [&]() -> Status {
    ATTNLOOM_TRY(Backend * device, device_of(context));
    ATTNLOOM_CHECK(device->synchronize(stream));
    return check_findings(*device);
  });
}
