// SPDX-License-Identifier: Apache-2.0
// Engines for the tests of device code. The shared one runs on the simulated device, or on the GPU
// when ATTNLOOM_TEST_DEVICE=cuda, and keeps its kernels in ATTNLOOM_TEST_CACHE (default: a private
// folder beside the temporary ones), so that a second run compiles nothing and a machine without
// NVRTC can run from a carried cache.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "compile/toolchain.h"
#include "engine/engine.h"
#include "engine/setup.h"
#include "tools/case/case_file.h"
#include "tools/runner/case_runner.h"

namespace attnloom::testing {

bool on_cuda();
// `profile`: of the simulated device, "" the default one.
std::unique_ptr<Engine> make_test_engine(std::uint64_t simulator_seed = 0,
                                         const std::string& profile = "");

// The same with the same cache and no device: it compiles for any target.
std::unique_ptr<Engine> make_compiling_engine();

// An engine on the simulated device whose compiler gets every Source after `edit`; it has no cache
// on disk.
std::unique_ptr<Engine> make_edited_engine(std::uint64_t simulator_seed,
                                           std::function<void(Source&)> edit);

// An engine on a device of the test's own, with the cache of the shared one.
std::unique_ptr<Engine> make_engine_over(
    std::function<Result<std::unique_ptr<Backend>>()> make_backend);

std::unique_ptr<Toolchain> make_test_toolchain();

// Replaces the only occurrence of `from` in a header; fails the test when there is none or more
// than one, so that a mutant cannot quietly become the original.
void replace_once(Source& source, const std::string& header, const std::string& from,
                  const std::string& to);

CaseFile parse_or_fail(const std::string& json, std::uint64_t page_seed = 0);

// What went wrong, "" when nothing did: error, finding, or the first difference from the reference
// or expectation.
std::string judge_run(const CaseFile& file, const Result<CaseRun>& run);

}  // namespace attnloom::testing
