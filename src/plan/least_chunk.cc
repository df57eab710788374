// SPDX-License-Identifier: Apache-2.0
#include "plan/least_chunk.h"

#include <algorithm>

namespace attnloom {
namespace {

// A shorter piece moves as many bytes of queries and partial state as of keys.
constexpr std::int64_t kLeastTokens = 128;

}  // namespace

// The longest way to a decode's output is one chunk and then the merge of all states by one CTA.
// With s bytes of state and k bytes of keys a token it reads T k + L / T s bytes, which is least
// where T T k = L s.
std::int64_t least_chunk(const Spec& spec, const TileClass& tile, std::int64_t packed_rows,
                         std::int64_t kv_len, bool prefix) {
  std::int64_t tokens = (kLeastTokens + tile.kv - 1) / tile.kv * tile.kv;
  if (tile.q > kMostDecodeRows && !prefix) return tokens;
  const std::int64_t key_bytes =
      std::int64_t{spec.head_dim.qk + spec.head_dim.vo} * bytes_of(spec.dtype.kv);
  const std::int64_t state_bytes = std::min<std::int64_t>(packed_rows, tile.q) *
                                   (spec.head_dim.vo + 1) * std::int64_t{sizeof(float)};
  while (tokens * tokens * key_bytes < kv_len * state_bytes) tokens += tile.kv;
  return tokens;
}

}  // namespace attnloom
