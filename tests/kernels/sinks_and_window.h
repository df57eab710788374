// SPDX-License-Identifier: Apache-2.0
// The texts of a variant that skips tiles, which tests of more than one family run.
#pragma once

namespace attnloom::testing {

// The first keys and a window, as a mask and as what it means for a tile.
inline constexpr const char* kSinksAndWindow = "return kv_pos < sinks || kv_pos > q_pos - window;";
inline constexpr const char* kSinksAndWindowTiles =
    "if (kv_pos_begin >= sinks && kv_pos_end - 1 <= q_pos_begin - window) return "
    "loom::TileMask::kSkip;\n"
    "if (kv_pos_end <= sinks || kv_pos_begin >= q_pos_end - window) return "
    "loom::TileMask::kFull;\n"
    "return loom::TileMask::kPartial;";

}  // namespace attnloom::testing
