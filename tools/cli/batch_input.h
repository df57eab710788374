// SPDX-License-Identifier: Apache-2.0
// The batch that `plan` and `run` work on: a case file, or a moment of a serving trace under a
// spec.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "tools/case/case_file.h"
#include "tools/cli/trace.h"

namespace attnloom::cli {

struct BatchOptions {
  std::string case_path;
  std::string trace;
  double at_seconds = 0;
  int batch = 0;
  std::string kind = "decode";
  std::string spec;  // "" = plain causal attention, bf16, 128 wide, groups of 4, pages of 16
  int kv_heads = 8;
  std::vector<std::string> params;  // "cap=30"
  std::optional<int> window_left;
  bool no_shared_prefix = false;
};

// `whole_traces`: --trace also stands without a moment of it.
void add_batch_options(CLI::App& command, BatchOptions& options, bool whole_traces = false);

// A whole trace under its spec.
struct TraceSource {
  Spec spec;
  std::vector<Arrival> arrivals;
  BatchKind kind = BatchKind::kDecode;
};
Result<TraceSource> load_trace_source(const BatchOptions& options);

// With all inputs; those of a trace are normal, by `seed`.
Result<CaseFile> load_batch(const BatchOptions& options, std::uint64_t seed);
// What a plan needs of it: tensors are left empty, as they may be far larger than this machine.
Result<CaseFile> load_batch_lengths(const BatchOptions& options, std::uint64_t seed);

}  // namespace attnloom::cli
