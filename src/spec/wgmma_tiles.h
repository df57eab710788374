// SPDX-License-Identifier: Apache-2.0
// The tiles of attention_wgmma (sm_90a), and what of a spec that family does: a spec names it in
// its tile, and what it does not do is refused there. Pure; thread-safe.
#pragma once

#include <optional>

#include "base/status.h"
#include "spec/spec.h"
#include "spec/tiles.h"

namespace attnloom {

inline constexpr const char* kWgmmaFamily = "attention_wgmma";
inline constexpr int kWgmmaQueryTiles[] = {128, 192};  // 64 rows a warpgroup
inline constexpr int kWgmmaKvTiles[] = {64, 96, 128};
inline constexpr int kWgmmaWideKvTiles[] = {64, 80};  // of values of 256 columns

// The kernel of query tile `q` and KV tile `kv`. Refused (path "$.tile" or below) when one is no
// tile, does not fit the target, or the family does not do what the spec asks for.
Result<KernelChoice> wgmma_kernel(const Spec& spec, int q, int kv);

// What automatic sets hold: the largest of the tiles, first by query rows. Nothing where the family
// does not do what the spec asks for, on its target or at all, or another does it faster.
std::optional<KernelChoice> best_wgmma_kernel(const Spec& spec);

// The same with the next smaller KV tile; an error where there is none.
Result<KernelChoice> smaller_wgmma_kernel(const Spec& spec, const KernelChoice& choice);

}  // namespace attnloom
