// SPDX-License-Identifier: Apache-2.0
// Serving traces: a CSV of TIMESTAMP,ContextTokens,GeneratedTokens (Azure's public LLM inference
// traces; mooncake.h reads another format), and the batch that a server would hold at one moment of
// it. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace attnloom::cli {

struct Arrival {
  double seconds = 0;  // since the first row
  std::int64_t context_tokens = 0;
  std::int64_t generated_tokens = 0;
  std::size_t line = 0;                   // of the file
  std::vector<std::int32_t> blocks = {};  // names of the prompt's blocks (mooncake.h), or none
};

// Errors: ARGUMENT_INVALID at "name:line".
Result<std::vector<Arrival>> parse_trace(std::string_view csv, const std::string& name);

enum class BatchKind { kDecode, kMixed, kPrefill };

struct BatchLengths {
  std::vector<std::int32_t> qo_len;  // a request, in the order of arrival
  std::vector<std::int32_t> kv_len;
  std::vector<std::int64_t> prompt_tokens;        // of kv_len, the first ones
  std::vector<std::vector<std::int32_t>> blocks;  // of the prompt
};

// The `batch` last of the first `end` arrivals. Otherwise as batch_at. REQUIRES: 1 <=
// batch <= end <= trace.size().
Result<BatchLengths> batch_ending(const std::vector<Arrival>& trace, std::size_t end, int batch,
                                  BatchKind kind, std::uint64_t seed);

// The `batch` last arrivals before `at_seconds`. A decode has generated a share u of its tokens,
// uniform in [0, 1) by `seed`, and asks for one more; a prefill is at its beginning. kMixed: the
// latest arrival is a prefill, the others decode.
Result<BatchLengths> batch_at(const std::vector<Arrival>& trace, double at_seconds, int batch,
                              BatchKind kind, std::uint64_t seed);

}  // namespace attnloom::cli
