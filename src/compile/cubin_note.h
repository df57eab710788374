// SPDX-License-Identifier: Apache-2.0
// What ptxas wrote of itself into a cubin's .note.nv.tkinfo. Two cubins of one program for sm_100
// and sm_100f differ in nothing else, so this is how a cubin that was renamed is told.
// Thread-safe: pure functions.
#pragma once

#include <string>
#include <string_view>

namespace attnloom {

struct CubinNote {
  std::string tool;     // "ptxas"
  std::string version;  // "Cuda compilation tools, release 13.0, V13.0.88"
  std::string target;   // "sm_90a"
};

// Fields are empty where the cubin is no ELF, has no such note (NVRTC 12.9 writes it from sm_100
// on), or has one of another form.
CubinNote read_cubin_note(std::string_view cubin);

}  // namespace attnloom
