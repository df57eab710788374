// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <optional>

#include "abi/boundary.h"
#include "abi/handles.h"

using namespace attnloom;

namespace {

Pending::Callback callback_of(const alm_prepare_options& options) {
  if (!options.callback) return {};
  return [callback = options.callback, user = options.user](const Status& status) {
    alm_error* error = nullptr;
    if (!status.ok()) report(&error, status);
    callback(user, error);
    if (error) alm_error_free(error);
  };
}

std::optional<std::chrono::steady_clock::time_point> deadline(std::int64_t timeout_ms) {
  // Longer than any process runs, and the clock's own numbers would not hold much more.
  constexpr std::int64_t kForEverMs = std::int64_t{1} << 40;
  if (timeout_ms < 0 || timeout_ms > kForEverMs) return std::nullopt;
  return std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
}

}  // namespace

alm_code alm_kernel_prepare_async(alm_kernel* kernel, const alm_prepare_options* options,
                                  alm_pending** pending, alm_error** error) {
  return guarded(error, [&]() -> Status {
    if (pending) *pending = nullptr;
    ATTNLOOM_CHECK(check_given(kernel, "kernel"));
    alm_prepare_options read = {};
    if (options) ATTNLOOM_CHECK(read_struct(options, "options", &read));
    const int priority = number_of(read.priority);
    if (priority != ALM_PRIORITY_REQUEST && priority != ALM_PRIORITY_PREWARM)
      return argument_error("options.priority",
                            "must be 0 or 1, given " + std::to_string(priority));
    // Before anything begins, so that no memory is wanted when something has.
    auto handle = std::make_unique<alm_pending>();
    handle->pending =
        Pending::start(kernel->kernels, static_cast<Priority>(priority), callback_of(read));
    if (pending) *pending = handle.release();
    return ok_status();
  });
}

alm_code alm_pending_wait(alm_pending* pending, int64_t timeout_ms, int* over, alm_error** error) {
  return guarded(error, [&]() -> Status {
    if (over) *over = 0;
    ATTNLOOM_CHECK(check_given(pending, "pending"));
    const std::optional<Status> status = pending->pending->wait(deadline(timeout_ms));
    if (over) *over = status ? 1 : 0;
    if (status) return *status;
    return make_error(Code::kCompileTimeout, "", "the kernels are still being compiled",
                      "wait again: the compiles go on");
  });
}

void alm_pending_cancel(alm_pending* pending) {
  if (pending) pending->pending->cancel();
}

void alm_pending_destroy(alm_pending* pending) {
  if (!pending) return;
  pending->pending->close();
  delete pending;
}
