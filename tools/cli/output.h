// SPDX-License-Identifier: Apache-2.0
// What the program prints and exits with: one JSON value or text on standard output, everything
// else on standard error.
#pragma once

#include <sys/types.h>

#include <span>
#include <string>

#include "base/json.h"
#include "base/status.h"

namespace attnloom::cli {

// docs/CLI.md tells users what each means.
enum Exit : int {
  kAgrees = 0,
  kDiffers = 1,      // from the reference or "expect", or the simulator found a fault
  kRefused = 2,      // the input
  kEnvironment = 3,  // no compiler, driver or device; a cache that cannot be used
  kUsage = 64,
};

Exit exit_of(Code code);
// As by the code, but ARGUMENT_INVALID of an option ("--kernel") is kUsage, and of a setting
// ("ATTNLOOM_JIT", "option nvrtc") kEnvironment.
Exit exit_of(const Status& error);

// {code, path, cause, remedy, retryable} on standard output with `json`, one line on standard error
// without.
void print_error(const Status& error, bool json);
void print_json(const Json& value);
// An error where something that was printed did not arrive: it must not pass for done.
Status finish_output();

// Non-finite values as "nan", "inf" and "-inf": JSON has no numbers for them.
Json json_number(double value);
// Row-major values as nested lists, one level an extent.
Json nested_list(std::span<const double> values, std::span<const std::int64_t> extents);

// "-" is standard input. ARGUMENT_INVALID for a file that cannot be read or has more than 256 MiB.
Result<std::string> read_input(const std::string& path);
// A file is replaced whole; anything else that `path` names is written through.
Status write_output(const std::string& path, std::string_view bytes);
// With exactly `mode`, whatever the umask; a file or link that is there already is an error and
// stays as it is.
Status write_new_file(const std::string& path, std::string_view bytes, mode_t mode);
// The same under a name that may be taken: readers see the old file or the new one, never a part.
Status replace_file(const std::string& path, std::string_view bytes, mode_t mode);

}  // namespace attnloom::cli
