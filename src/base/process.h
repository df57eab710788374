// SPDX-License-Identifier: Apache-2.0
// Runs another program by argument vector; never through a shell. Thread-safe.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace attnloom {

struct ProcessResult {
  int exit_code = 0;   // 128 + signal when a signal ended it
  std::string output;  // standard output
  std::string errors;  // standard error
};

// Waits for the end. An error is returned only when the program could not be started.
Result<ProcessResult> run_process(const std::vector<std::string>& argv);

}  // namespace attnloom
