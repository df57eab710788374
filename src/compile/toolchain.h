// SPDX-License-Identifier: Apache-2.0
// Toolchain: the compiler as an interface, so that tests can count and fake compiles. Thread-safe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "compile/artifact.h"
#include "compile/interrupt.h"
#include "render/source.h"

namespace attnloom {

class Toolchain {
 public:
  virtual ~Toolchain() = default;
  // COMPILER_MISSING (with the places searched) where there is none. Opens the library on first
  // use.
  virtual Result<Fingerprint> fingerprint() = 0;
  // Errors: COMPILE_FAILED with path = the functor field and cause = its first error line
  // ("variant.logits_transform:1: identifier "foo" is undefined"); RESOURCE_LIMIT; SPEC_UNSUPPORTED
  // for a target the compiler does not know. Spills are not an error here: engine steps the tile
  // down. Fatal ptxas remarks are. source.options are used as they are;
  // "--gpu-architecture=<target>" must be one of them.
  virtual Result<Artifact> compile(const Source& source) = 0;
  // The same, given up soon after `interrupt` has a reason; the error then has the reason's code. A
  // compiler that cannot be stopped goes on to its end.
  virtual Result<Artifact> compile_interruptibly(const Source& source, const Interrupt& interrupt) {
    static_cast<void>(interrupt);
    return compile(source);
  }
};

// NVRTC by dlopen, in this order: `path` if not empty (nothing else is then tried), beside this
// library, the python package folders nvidia/cu13/lib and nvidia/cuda_nvrtc/lib of `python_paths`,
// `cuda_home`/lib64, the loader's own search, /usr/local/cuda/lib64. docs/DEPLOY.md documents the
// order.
struct NvrtcSearch {
  std::string path;  // a library file, or a folder that holds one
  std::string cuda_home;
  std::vector<std::string> python_paths;
  std::string beside;  // folder of this library or program
};
std::unique_ptr<Toolchain> make_nvrtc_toolchain(const NvrtcSearch& search);

// What was tried and what was found, for `doctor`.
struct NvrtcProbe {
  std::vector<std::string> tried;  // "PATH: reason"
  std::string found;               // empty when none
  int major = 0;
  int minor = 0;
};
NvrtcProbe probe_nvrtc(const NvrtcSearch& search);

}  // namespace attnloom
