// SPDX-License-Identifier: Apache-2.0
// Mooncake's serving traces (JSON lines): lengths of requests, and names of the 512-token blocks of
// their prompts, equal where the prompts are equal up to and with that block. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "tools/cli/trace.h"

namespace attnloom::cli {

inline constexpr std::int64_t kMooncakeBlock = 512;  // tokens

// A line is {"timestamp": ms, "input_length", "output_length", "hash_ids": [one a block begun]}.
// Errors: ARGUMENT_INVALID at "name:line".
Result<std::vector<Arrival>> parse_mooncake(std::string_view lines, const std::string& name);

struct PageTable {
  std::vector<std::int32_t> indptr;  // [requests + 1]
  std::vector<std::int32_t> indices;
  std::vector<std::int32_t> last_page_len;
  std::int64_t pool = 0;  // pages; one of them is nobody's
};

// Requests with equal prefixes name the same pages, as far as whole pages of their prompts go; what
// was generated lies in pages of a request's own. Page numbers are shuffled by `seed`. Errors:
// ARGUMENT_INVALID where there are more pages than an int32 counts.
Result<PageTable> share_pages(const BatchLengths& batch, std::int64_t page_size,
                              std::uint64_t seed);

}  // namespace attnloom::cli
