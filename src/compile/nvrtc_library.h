// SPDX-License-Identifier: Apache-2.0
// libnvrtc as found on this machine: the search for it, its few functions, and the fingerprint of
// its build.
//
// The handle is never closed: NVRTC keeps per-thread state whose destructors run when a thread
// ends, perhaps after us. Immutable once open; thread-safe.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/status.h"
#include "compile/artifact.h"
#include "compile/toolchain.h"

namespace attnloom {

// The prototypes that we use of nvrtc.h: no CUDA header is needed to build this library.
using NvrtcProgram = struct NvrtcProgramOpaque*;

struct NvrtcFunctions {
  int (*version)(int* major, int* minor) = nullptr;
  const char* (*error_string)(int result) = nullptr;
  int (*num_supported_archs)(int* count) = nullptr;
  int (*supported_archs)(int* archs) = nullptr;
  int (*create_program)(NvrtcProgram*, const char* text, const char* name, int header_count,
                        const char* const* headers, const char* const* include_names) = nullptr;
  int (*destroy_program)(NvrtcProgram*) = nullptr;
  int (*compile_program)(NvrtcProgram, int option_count, const char* const* options) = nullptr;
  int (*cubin_size)(NvrtcProgram, std::size_t*) = nullptr;
  int (*cubin)(NvrtcProgram, char*) = nullptr;
  int (*ptx_size)(NvrtcProgram, std::size_t*) = nullptr;
  int (*ptx)(NvrtcProgram, char*) = nullptr;
  int (*log_size)(NvrtcProgram, std::size_t*) = nullptr;
  int (*log)(NvrtcProgram, char*) = nullptr;
  // May be null. The compiler calls back now and then, from any of its threads; 1 stops it.
  int (*set_flow_callback)(NvrtcProgram, int (*)(void* payload, void*), void* payload) = nullptr;
};

struct NvrtcLibrary {
  std::string path;  // of the file that was loaded
  int major = 0;
  int minor = 0;
  Fingerprint fingerprint;
  std::vector<int> archs;  // 75, 80, ...
  NvrtcFunctions call;
};

// The first usable library of the documented order. `tried` (may be null) receives one line for
// each place. COMPILER_MISSING names the places; COMPILER_VERSION when only versions
// outside 12.9..13.x were found.
Result<NvrtcLibrary> open_nvrtc(const NvrtcSearch& search, std::vector<std::string>* tried);

}  // namespace attnloom
