// SPDX-License-Identifier: Apache-2.0
// What the cubin itself says of its entries. Spills are not in the ELF: compiler_log.h reads them
// from ptxas' remarks. Thread-safe: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "compile/artifact.h"

namespace attnloom {

// In the order of `entries`, spills left at 0. An entry that the cubin lacks is an error, as is
// anything but an ELF.
Result<std::vector<EntryFigures>> read_cubin(std::string_view cubin,
                                             const std::vector<std::string>& entries);

}  // namespace attnloom
