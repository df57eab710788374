// SPDX-License-Identifier: Apache-2.0
// Whether a kernel of a spec may read a prefix once for several requests. Pure; thread-safe.
#pragma once

#include "spec/spec.h"

namespace attnloom {

// Query rows of a tile that walks a shared prefix, at most.
inline constexpr int kMostPrefixRows = 128;

// True where a key means the same to every query that comes after it, whatever its request: paged
// keys, no mask but the causal one, and no functor on logits, keys or values that names the
// request, its lengths or the query's position. (query_transform is given each row's own position,
// output_transform each row's own request.) The names are looked for as words, comments and prelude
// included: a false alarm costs speed only.
bool may_share_prefixes(const Spec& spec);

}  // namespace attnloom
