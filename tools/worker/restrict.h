// SPDX-License-Identifier: Apache-2.0
// What attnloom-cc gives up before it reads text that nobody vouches for. Everything here is for
// good and for this process; a process with one thread calls it.
#pragma once

#include <cstdint>
#include <optional>

#include "base/status.h"

namespace attnloom::worker {

struct Restriction {
  std::uint64_t address_space_bytes = 0;
  std::uint64_t cpu_seconds = 0;
  bool weak_sandbox = false;  // goes on without the parts that the kernel lacks
  // Of the kernel where not said; a test says 0 for a kernel without Landlock.
  std::optional<int> landlock_version;
};

// The version of the kernel's Landlock, 0 where it has none or it is off.
int landlock_version();

// The three parts, in the order in which restrict_process applies them.
// No file can be read, written, run or removed, no TCP port used, no other process signalled.
// REQUIRES: version >= 1, and no new privileges.
Status close_files(int version);
// No sockets, programs, processes, tracing, shared memory or change of a file's owner and mode:
// what Landlock lets pass. REQUIRES: no new privileges.
Status filter_calls();
// Memory and processor time; no descriptor can be opened, no file grow, no core be dumped.
Status limit_resources(const Restriction& restriction);

// All of it, and no capabilities and no new privileges. UNTRUSTED where the kernel lacks Landlock
// or seccomp.
Status restrict_process(const Restriction& restriction);

}  // namespace attnloom::worker
