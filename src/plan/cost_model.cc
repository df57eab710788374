// SPDX-License-Identifier: Apache-2.0
#include "plan/cost_model.h"

#include <algorithm>

#include "plan/least_chunk.h"

namespace attnloom {

ClassCost CostModel::of_class(const Spec& spec, const TileClass& tile, int ctas,
                              std::int64_t tokens) const {
  if (profile == nullptr) return {alpha * tile.q, beta, 1, 0};
  const double share = 1.0 / ctas;
  const double bytes_per_ns = profile->bytes_per_ns * share;
  const int dims = spec.head_dim.qk + spec.head_dim.vo;
  const bool decode = tile.q <= kMostDecodeRows;
  const double flops = 2.0 * tile.q * tile.kv * dims / (profile->flops_per_ns * share);
  const double bytes = 1.0 * tile.kv * dims * bytes_of(spec.dtype.kv);
  const int rows = decode ? std::min(tile.q, spec.group_size) : tile.q;
  // Written and read back, at half the pace of keys: few loads are in flight.
  const double state = 2 * 2 * 4.0 * rows * (spec.head_dim.vo + 1);
  const double merge = profile->state_ns + state / bytes_per_ns;
  if (!decode) return {profile->latency_ns, flops + profile->step_ns, tile.kv, merge};
  const ClassCost alone{profile->latency_ns, std::max(flops, bytes / profile->cta_bytes_per_ns),
                        tile.kv, merge};
  const ClassCost covered{profile->item_ns, std::max(flops, bytes / bytes_per_ns), tile.kv, merge};
  return alone.of(tokens) > covered.of(tokens) ? alone : covered;
}

}  // namespace attnloom
