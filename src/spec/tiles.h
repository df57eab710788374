// SPDX-License-Identifier: Apache-2.0
// Tile classes and the kernel set of a spec: which compiled kernels `"tile": "auto"` stands for,
// with the KV tile of each class by occupancy (registers and shared memory of the target). Pure;
// thread-safe.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "spec/spec.h"

namespace attnloom {

// The packed query rows of attention_mma's classes. The largest is for long prefills only: eight
// warps share each tile of keys, so copies and row functors cost half as much a query row. It is
// used where every request of a batch has kLongRows rows, and has no part in joint kernels.
inline constexpr int kQueryTiles[] = {16, 32, 64, 128, 256};
inline constexpr int kLongQueryTile = 256;
inline constexpr int kLongRows = 8192;
inline constexpr int kDecodeQueryTile = 1;  // of decode_simt
inline constexpr int kKvTiles[] = {32, 64, 128};

struct TileClass {
  int q = 0;       // packed query rows
  int kv = 0;      // KV tokens
  int stages = 2;  // of the shared-memory ring, each a K and a V tile
  bool operator==(const TileClass&) const = default;
};

// One kernel of a set: one class, or two and more for a joint kernel that switches class per work
// item.
struct KernelChoice {
  std::string family;  // "attention_mma", "decode_simt", "attention_wgmma" or the kernel's own
                       // name
  std::vector<TileClass> classes;  // ascending q; empty but for attention
  int threads = 0;                 // per CTA
  int shared_bytes = 0;            // dynamic shared memory per CTA: the maximum over the classes
  int min_ctas_per_sm = 1;         // what __launch_bounds__ promises
  bool operator==(const KernelChoice&) const = default;
};

// The kernels of `spec` in a fixed order: single-class ones ascending, then the joint kernel, then
// that of attention_wgmma where the target and the spec have one. A literal tile gives a set of
// one. Refused (SPEC_UNSUPPORTED or RESOURCE_LIMIT, path "$.tile") when a named tile does not fit
// the target. REQUIRES: check_spec(spec) passed.
Result<std::vector<KernelChoice>> kernel_set(const Spec& spec);

// A set without the kernel of attention_wgmma, which takes no part in batches of prefixes that are
// shared, of single tokens, or that have to be invariant; the whole set where it is alone.
std::span<const KernelChoice> warp_kernels(std::span<const KernelChoice> set);

// The same kernel with the KV tile of its largest class one step down, or decode_simt with a CTA an
// SM less, for a compile that spilled; an error when there is no smaller one.
Result<KernelChoice> step_down(const Spec& spec, const KernelChoice& choice);

// Dynamic shared memory of one class of attention_mma in a kernel of `warps` warps: Q tile and
// `stages` K and V tiles, all of which the epilogue then uses as scratch. attention_mma.cuh counts
// the same bytes; a static_assert there compares.
int shared_bytes(const Spec& spec, const TileClass& tile, int warps);

}  // namespace attnloom
