// SPDX-License-Identifier: Apache-2.0
// Reads NVRTC's program log: the front end's errors, ptxas' errors and remarks, and the figures of
// `--ptxas-options=-v`. Thread-safe: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "compile/artifact.h"

namespace attnloom {

// The log without what differs from run to run (compile times), so that it can be stored.
std::string stable_log(std::string_view log);

bool names_an_error(std::string_view log);

// The error of a compile that failed, from the first error line. "variant.x(3)" is the user's
// functor (path
// "$.variant.x", COMPILE_FAILED), and so is "variant.x:end(1)", our text right behind it; an error
// in any other file is ours (TEMPLATE); what ptxas cannot fit is RESOURCE_LIMIT. A log without an
// error line yields `fallback`.
Status failure_in_log(std::string_view log, const Status& fallback);

// Not ok when ptxas says that it dropped or serialised a Hopper instruction: such a kernel is right
// and several times too slow. NVRTC reports these as remarks of a compile that succeeded.
Status fatal_remark_in_log(std::string_view log);

// Fills in spill_store_bytes and spill_load_bytes; a function that an entry calls counts for the
// entry.
void read_spills(std::string_view log, std::vector<EntryFigures>& entries);

}  // namespace attnloom
