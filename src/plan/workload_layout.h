// SPDX-License-Identifier: Apache-2.0
// The checks of a workload that depend on how K and V lie in memory, and how workload checks write
// their errors. They allocate to report one, or from the memory given. Pure; thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "plan/scratch.h"
#include "plan/workload.h"
#include "spec/tiles.h"

namespace attnloom {

// A kernel may step one tile past a length before it compares, in 32 bits.
inline constexpr std::int64_t kMaxLength =
    std::numeric_limits<std::int32_t>::max() -
    std::max(kQueryTiles[std::size(kQueryTiles) - 1], kKvTiles[std::size(kKvTiles) - 1]);

std::string text(std::int64_t value);
std::string element(std::string_view array, std::int64_t index);  // "workload.array[3]"
Status invalid(std::string path, std::string cause, std::string remedy);

Status check_length(std::string_view array, std::size_t given, std::int64_t wanted,
                    std::string_view remedy);
// `owner`: whose entries it counts, named where they would be fewer than none.
Status check_indptr(std::string_view array, std::span<const std::int32_t> indptr,
                    std::string_view owner = "request");

// The arrays that layout.kv needs, and none of another layout. REQUIRES: qo_indptr and kv_indptr
// were checked.
Status check_kv_arrays(const Spec& spec, const Workload& workload, Memory* memory = heap());

}  // namespace attnloom
