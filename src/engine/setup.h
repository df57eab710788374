// SPDX-License-Identifier: Apache-2.0
// From what a caller asks for and the environment to an Engine: the one place where real devices,
// the real compiler and the real file system are chosen.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "engine/engine.h"
#include "engine/environment.h"
#include "engine/log.h"
#include "engine/settings.h"

namespace attnloom {

// Numbers are those of alm_device.
enum class DeviceKind : int { kAuto = 0, kCuda = 1, kSimulator = 2, kNone = 3 };

// Text that nobody vouches for: compiled by attnloom-cc, in a process that is confined.
struct UntrustedOptions {
  bool on = false;
  bool weak_sandbox = false;  // goes on where the kernel cannot confine it
  std::string worker;         // "" = attnloom-cc in the folder of this program
};

struct SetupOptions {
  DeviceKind device = DeviceKind::kAuto;
  std::string simulator_profile;  // "" = h200
  std::uint64_t simulator_seed = 0;
  std::string driver_library;  // "" = libcuda.so.1 by the loader's search
  int least_driver = 0;        // without a device: of those that are to load the kernels; 0: any
  SettingOptions settings;
  UntrustedOptions untrusted;
  // As in EngineOptions; kDefault and 0 mean the default there.
  AcquireOptions policy;
  std::chrono::milliseconds compile_timeout{0};
  int most_loaded_kernels = 0;
  std::uint64_t most_loaded_bytes = 0;
};

// Touches no device and opens no compiler. Errors: those of resolve_settings; ARGUMENT_INVALID for
// an unknown simulator profile.
Result<std::unique_ptr<Engine>> make_engine(const SetupOptions& options,
                                            const Environment& environment, Log log);

// The compiler of this machine that make_engine's engine uses.
std::unique_ptr<Toolchain> make_toolchain(const SetupOptions& options, const Settings& settings);

}  // namespace attnloom
