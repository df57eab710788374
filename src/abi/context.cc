// SPDX-License-Identifier: Apache-2.0
#include "abi/boundary.h"
#include "abi/handles.h"
#include "engine/setup.h"

using namespace attnloom;

namespace {

constexpr int kDefaultLogLevel = 2;

Log make_log(const alm_context_options& options) {
  if (!options.log) return Log();
  const int level = options.log_level == 0 ? kDefaultLogLevel : std::clamp(options.log_level, 0, 3);
  return Log(
      [callback = options.log, user = options.log_user](LogLevel at, const std::string& line) {
        callback(user, static_cast<int>(at), line.c_str());
      },
      static_cast<LogLevel>(level));
}

Status check_enums(const alm_context_options& options) {
  const int device = number_of(options.device);
  if (device < ALM_DEVICE_AUTO || device > ALM_DEVICE_NONE)
    return argument_error("options.device", "must be 0 to 3, given " + std::to_string(device));
  const int jit = number_of(options.jit);
  if (jit != ALM_JIT_ALLOW && jit != ALM_JIT_NEVER)
    return argument_error("options.jit", "must be 0 or 1, given " + std::to_string(jit));
  return ok_status();
}

SetupOptions setup_options(const alm_context_options& options) {
  SetupOptions setup;
  setup.device = static_cast<DeviceKind>(options.device);
  setup.simulator_profile = text_of(options.simulator_profile);
  setup.simulator_seed = options.simulator_seed;
  setup.settings.cache_dir = text_of(options.cache_dir);
  setup.settings.read_only_caches = text_of(options.read_only_caches);
  setup.settings.trust_keys = text_of(options.trust_keys);
  setup.settings.nvrtc = text_of(options.nvrtc);
  setup.settings.lock_dir = text_of(options.lock_dir);
  setup.settings.python_paths = text_of(options.python_paths);
  if (options.jit == ALM_JIT_NEVER) setup.settings.jit = false;
  return setup;
}

}  // namespace

alm_code alm_context_create(const alm_context_options* options, alm_context** context,
                            alm_error** error) {
  return guarded(error, [&]() -> Status {
    ATTNLOOM_CHECK(check_given(context, "context"));
    *context = nullptr;
    alm_context_options read = {};
    if (options) ATTNLOOM_CHECK(read_struct(options, "options", &read));
    ATTNLOOM_CHECK(check_enums(read));
    ATTNLOOM_TRY(auto engine, make_engine(setup_options(read), read_environment(), make_log(read)));
    *context = new alm_context{std::move(engine)};
    return ok_status();
  });
}

void alm_context_destroy(alm_context* context) {
  delete context;
}

alm_code alm_context_describe(alm_context* context, alm_text** json, alm_error** error) {
  return guarded(error, [&]() -> Status {
    ATTNLOOM_CHECK(check_given(context, "context"));
    ATTNLOOM_CHECK(check_given(json, "json"));
    return give_text(context->engine->describe().dump(), json);
  });
}
