// SPDX-License-Identifier: Apache-2.0
#include "plan/cost_model.h"

#include <algorithm>

#include "plan/least_chunk.h"

namespace attnloom {
ClassCost CostModel::of_class(const Spec& spec, const TileClass& tile, int ctas) const {
  if (profile == nullptr) return {alpha * tile.q, beta, 1, 0};
  const double share = 1.0 / ctas;
  const double bytes_per_ns = profile->bytes_per_ns * share;
  const int dims = spec.head_dim.qk + spec.head_dim.vo;
  const bool decode = tile.q <= kMostDecodeRows;
  const double flops = 2.0 * tile.q * tile.kv * dims / (profile->flops_per_ns * share);
  const double bytes = 1.0 * tile.kv * dims * bytes_of(spec.dtype.kv) / bytes_per_ns;
  const int rows = decode ? std::min(tile.q, spec.group_size) : tile.q;
  const double state = 4.0 * rows * (spec.head_dim.vo + 1);
  return {.item = profile->item_ns,
          .step = decode ? std::max(flops, bytes) : flops,
          .step_tokens = tile.kv,
          .merge = 2 * state / bytes_per_ns};
}

}  // namespace attnloom
