// SPDX-License-Identifier: Apache-2.0
// Artifact: what one compile of a Source yields for one concrete target: cubin and PTX of the same
// program, with the figures the ELF holds. Value. It names no machine, path, time or user.
#pragma once

#include <string>
#include <vector>

namespace attnloom {

struct EntryFigures {
  std::string name;
  int registers = 0;
  int static_shared_bytes = 0;
  int local_bytes = 0;  // stack frame per thread
  int spill_store_bytes = 0;
  int spill_load_bytes = 0;
  int max_threads = 0;  // from __launch_bounds__
  bool operator==(const EntryFigures&) const = default;
};

// Which compiler made an artifact.
struct Fingerprint {
  std::string hex;  // 16 hex digits over the build-ids of libnvrtc and its builtins
  int cuda_major = 0;
  int cuda_minor = 0;
  int least_driver = 0;  // as cuDriverGetVersion counts: 13000
  bool operator==(const Fingerprint&) const = default;
};

struct Artifact {
  std::string cubin;  // never empty
  std::string ptx;    // may be empty where an entry dropped it
  std::string target;
  std::vector<EntryFigures> entries;
  std::string log;  // the compiler's remarks
  Fingerprint fingerprint;
  bool operator==(const Artifact&) const = default;
};

}  // namespace attnloom
