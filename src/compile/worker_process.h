// SPDX-License-Identifier: Apache-2.0
// WorkerProcess: one run of another program on input that is known beforehand. The child has this
// input, its output and /dev/null, nothing else of ours: no environment and no other descriptor.
// Owned by one thread. Destruction kills it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace attnloom {

class WorkerProcess {
 public:
  WorkerProcess() = default;
  ~WorkerProcess();
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  // Errors: COMPILER_MISSING where there is no such program; OUT_OF_MEMORY, INTERNAL.
  Status start(const std::string& program, std::string_view input);

  enum class Progress { kRunning, kEnded, kTooMuch };
  // Adds what the program wrote to `output`, for which it waits no longer than `patience`. kEnded
  // at the end of its output; kTooMuch, once there are more than `most_bytes`.
  Progress read(std::string& output, std::uint64_t most_bytes, std::chrono::milliseconds patience);

  // Kills the program if it runs. How it ended, as waitpid says it; -1 where the host program
  // collects or ignores all its children.
  int finish();

 private:
  pid_t pid_ = -1;
  int output_ = -1;
};

}  // namespace attnloom
