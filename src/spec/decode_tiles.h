// SPDX-License-Identifier: Apache-2.0
// The tiles of decode_simt: one packed query row, so what is left to choose is the KV tile. Pure;
// thread-safe.
#pragma once

#include <optional>

#include "base/status.h"
#include "spec/spec.h"
#include "spec/tiles.h"

namespace attnloom {

inline constexpr int kDecodeKvTiles[] = {16, 32, 64, 128};

// The kernel with a KV tile of `kv` tokens. Refused (path "$.tile") when `kv` is no tile or does
// not fit the target.
Result<KernelChoice> decode_kernel(const Spec& spec, int kv);

// The one with the most CTAs an SM and among those the largest KV tile; nothing where none fits.
std::optional<KernelChoice> best_decode_kernel(const Spec& spec);

}  // namespace attnloom
