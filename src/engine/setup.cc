// SPDX-License-Identifier: Apache-2.0
#include "engine/setup.h"

#include <filesystem>
#include <system_error>

#include "compile/sandbox_toolchain.h"
#include "engine/service_toolchain.h"
#include "runtime/cuda.h"
#include "runtime/sim_backend.h"

namespace attnloom {
namespace {

Result<const sim::Profile*> simulator_profile(const SetupOptions& options) {
  if (options.simulator_profile.empty()) return &sim::profiles().front();
  if (const sim::Profile* profile = sim::find_profile(options.simulator_profile)) return profile;
  std::string known;
  for (const sim::Profile& profile : sim::profiles())
    known += (known.empty() ? "" : ", ") + profile.name;
  return make_error(Code::kArgumentInvalid, "simulator_profile",
                    "must be one of " + known + "; given " + options.simulator_profile);
}

std::function<Result<std::unique_ptr<Backend>>()> device_factory(const SetupOptions& options,
                                                                 const sim::Profile& profile) {
  if (options.device == DeviceKind::kNone) return {};
  const auto simulate = [&profile,
                         seed = options.simulator_seed]() -> Result<std::unique_ptr<Backend>> {
    sim::Options how;
    how.seed = seed;
    return std::unique_ptr<Backend>(std::make_unique<SimBackend>(profile, how));
  };
  if (options.device == DeviceKind::kSimulator) return simulate;
  return [simulate, library = options.driver_library,
          automatic = options.device == DeviceKind::kAuto]() -> Result<std::unique_ptr<Backend>> {
    Result<std::unique_ptr<Backend>> cuda = make_cuda_backend(library);
    // An old driver or a fork is a fault to report; only a machine without a device means the
    // simulator.
    const bool absent = !cuda.ok() && (cuda.status().code == Code::kNoDriver ||
                                       cuda.status().code == Code::kNoDevice);
    return automatic && absent ? simulate() : std::move(cuda);
  };
}

// A program that was found by PATH knows its folder from the kernel only.
std::string worker_beside_program() {
  std::error_code failed;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", failed);
  return (failed ? std::filesystem::path(own_folder()) : program.parent_path()) / "attnloom-cc";
}

// The node's own compiler becomes the second choice.
ServiceToolchain* use_service(const Settings& settings, EngineOptions& options) {
  ServiceOptions service = {.client = *settings.remote.service,
                            .keys = settings.trusted,
                            .unsigned_entries = settings.remote.unsigned_entries};
  auto made = std::make_unique<ServiceToolchain>(std::move(service), std::move(options.toolchain));
  ServiceToolchain* toolchain = made.get();
  options.before_compile = [toolchain](const std::string& key, const Spec& spec) {
    toolchain->remember(key, spec);
  };
  options.toolchain = std::move(made);
  return toolchain;
}

}  // namespace

std::unique_ptr<Toolchain> make_toolchain(const SetupOptions& options, const Settings& settings) {
  if (!options.untrusted.on) return make_nvrtc_toolchain(settings.search);
  SandboxOptions sandbox;
  sandbox.worker = options.untrusted.worker;
  if (sandbox.worker.empty()) sandbox.worker = worker_beside_program();
  sandbox.search = settings.search;
  sandbox.weak_sandbox = options.untrusted.weak_sandbox;
  if (options.compile_timeout.count() > 0)
    sandbox.time = std::chrono::ceil<std::chrono::seconds>(options.compile_timeout);
  return make_sandbox_toolchain(sandbox);
}

Result<std::unique_ptr<Engine>> make_engine(const SetupOptions& options,
                                            const Environment& environment, Log log) {
  ATTNLOOM_TRY(const sim::Profile* profile, simulator_profile(options));
  EngineOptions engine_options;
  engine_options.files = make_real_file_system();
  ATTNLOOM_TRY(const Settings settings,
               resolve_settings(options.settings, environment, *engine_options.files));
  engine_options.make_backend = device_factory(options, *profile);
  engine_options.toolchain = make_toolchain(options, settings);
  ServiceToolchain* service =
      settings.remote.service ? use_service(settings, engine_options) : nullptr;
  engine_options.store.root = settings.cache_root.value;
  engine_options.store.read_only = settings.read_only;
  engine_options.store.trust_keys = settings.trusted;
  engine_options.store.care.max_bytes = settings.cache_max_bytes;
  engine_options.store.remote = settings.remote.remote;
  engine_options.jit = settings.jit;
  engine_options.jit_warns = settings.jit_warns;
  engine_options.jobs = settings.jobs;
  if (options.policy.policy != Policy::kDefault) engine_options.policy = options.policy.policy;
  engine_options.policy_timeout = options.policy.timeout;
  if (options.compile_timeout.count() > 0) engine_options.compile_timeout = options.compile_timeout;
  engine_options.most_loaded_kernels = options.most_loaded_kernels;
  engine_options.most_loaded_bytes = options.most_loaded_bytes;
  engine_options.least_driver = options.least_driver;
  engine_options.lock_directory = settings.lock_dir.value;
  engine_options.access_log = settings.access_log.value;
  engine_options.log = std::move(log);
  engine_options.settings = settings_to_json(settings);
  engine_options.settings["untrusted"] = {{"value", options.untrusted.on},
                                          {"weak_sandbox", options.untrusted.weak_sandbox}};
  engine_options.settings["compile_timeout_ms"] = engine_options.compile_timeout.count();
  auto engine = std::make_unique<Engine>(std::move(engine_options));
  if (service != nullptr)
    service->set_warn([log = &engine->log()](const std::string& line) { log->warn(line); });
  if (settings.cache_root.named && !engine->store().root_refusal().empty()) {
    return make_error(
        Code::kCacheIo, settings.cache_root.origin,
        settings.cache_root.value + " cannot be used: " + engine->store().root_refusal(),
        "name another place, or leave it out to use the default");
  }
  return engine;
}

}  // namespace attnloom
