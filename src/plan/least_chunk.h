// SPDX-License-Identifier: Apache-2.0
// The shortest chunk of keys worth an item of its own, for both schedules. Pure; thread-safe.
#pragma once

#include <cstdint>

#include "spec/spec.h"
#include "spec/tiles.h"

namespace attnloom {

// Tiles of more rows are bound by arithmetic, which splitting shares out, and find their keys in L2
// besides: bytes say nothing there.
inline constexpr int kMostDecodeRows = 16;

// Of an entry of `packed_rows` query rows in tiles of `tile`, with `kv_len` keys to walk. A
// multiple of the KV tile. What an item costs beside its keys: its queries, its words of the plan,
// and a partial state that the last arriver reads back (docs/PLANNER.md has the numbers).
// `prefix`: the rows are those of several decodes, and their states as many as in decode.
std::int64_t least_chunk(const Spec& spec, const TileClass& tile, std::int64_t packed_rows,
                         std::int64_t kv_len, bool prefix = false);

}  // namespace attnloom
