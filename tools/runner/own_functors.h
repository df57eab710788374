// SPDX-License-Identifier: Apache-2.0
// The reference for a variant that has no float64 twin: its own functor text, compiled into a
// scalar one-thread kernel and run on the simulated device, inside an otherwise float64 attention.
// Says nothing about the functor itself (the output is marked "own functors"), everything about the
// kernel around it.
#pragma once

#include "base/status.h"
#include "compile/toolchain.h"
#include "tools/case/case_file.h"
#include "tools/case/judge.h"

namespace attnloom {

// Errors: those of Toolchain::compile; LAUNCH when a functor faults (an index past a pointer
// param's end).
Result<CaseReference> solve_with_own_functors(Toolchain& toolchain, const CaseFile& file);

// solve_case where a twin stands for the case, else the above. `own_functors` says which it was.
Result<CaseReference> solve_by_any(Toolchain& toolchain, const CaseFile& file, bool& own_functors);

}  // namespace attnloom
