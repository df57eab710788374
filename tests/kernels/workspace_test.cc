// SPDX-License-Identifier: Apache-2.0
// The workspace that a plan asks for is what its runs touch: never a byte more (the simulated
// device has nothing mapped behind an allocation), and at the worst all of it.
#include <catch2/catch.hpp>

#include "kernels/graph_rig.h"

namespace attnloom::testing {
namespace {

// Of a workspace that was full of ones: behind the last byte that is something else.
std::size_t touched_bytes(GraphRig& rig, const GraphRig::Planned& planned) {
  std::vector<std::byte> bytes(planned.plan->workspace_bytes());
  REQUIRE(rig.backend().copy_out(bytes, planned.workspace).ok());
  std::size_t end = bytes.size();
  while (end > 0 && bytes[end - 1] == std::byte{0xff}) --end;
  return end;
}

}  // namespace

TEST_CASE("random batches at the limits stay within the workspace", "[graph]") {
  const bool sparse = GENERATE(false, true);
  const bool invariant = GENERATE(false, true);
  CAPTURE(sparse, invariant);
  GraphRig rig({.sparse = sparse, .causal = false, .max_tokens = 40});
  std::mt19937 random(3);
  for (const int ctas : {1, 3, 16}) {
    GraphRig::Planned planned =
        rig.make_plan({}, {.max_ctas = ctas, .batch_invariant = invariant}, 0xff);
    for (int i = 0; i < 12; ++i) {
      RigBatch batch;
      for (int r = 0; r < 4; ++r) {
        const int qo_len = static_cast<int>(random() % 11);
        const int kv_len = static_cast<int>(random() % (i % 2 == 0 ? 60 : 510));
        if (sparse)
          batch.add_sparse(qo_len, kv_len, random);
        else
          batch.add_paged(qo_len, kv_len);
      }
      rig.update(planned, batch);
      rig.run(planned);  // fails on any finding
    }
    REQUIRE(touched_bytes(rig, planned) <= planned.plan->workspace_bytes());
  }
}

// One request a CTA but one, and each a little longer than a share of all keys: 2 (C - 1) chunks
// with a state of the 2 C that there is room for.
TEST_CASE("the worst splits of a batch fill the workspace but for one CTA's states", "[graph]") {
  constexpr int kCtas = 16;
  GraphRig rig({.kv_heads = 1,
                .causal = false,
                .tile = R"({"q": 16, "kv": 64})",
                .max_batch = kCtas,
                .max_tokens = kCtas,
                .kv_tokens = kCtas * 1008});
  GraphRig::Planned planned = rig.make_plan({}, {.max_ctas = kCtas}, 0xff);
  RigBatch batch;
  for (int r = 0; r + 1 < kCtas; ++r) batch.add_paged(1, 1000);
  rig.update(planned, batch);
  rig.run(planned);
  // The states' LSE come last, 16 rows a chunk.
  const std::size_t slack = planned.plan->workspace_bytes() - touched_bytes(rig, planned);
  CHECK(slack <= 2 * 16 * 4 + 14 * 4 + 255);
}

TEST_CASE("long decodes fill the workspace of a batch-invariant plan", "[graph]") {
  GraphRig rig({.causal = false,
                .tile = R"({"q": 16, "kv": 64})",
                .max_batch = 2,
                .max_tokens = 2,
                .kv_tokens = 2 * 7696});
  GraphRig::Planned planned = rig.make_plan({}, {.max_ctas = 40, .batch_invariant = true}, 0xff);
  rig.update(planned, RigBatch().add_paged(1, 7690).add_paged(1, 7690));  // over 15 chunks of 512
  rig.run(planned);
  const std::size_t slack = planned.plan->workspace_bytes() - touched_bytes(rig, planned);
  CHECK(slack <= 14 * 4 + 255);  // the rows of the last tile that no query has, and the border
}

}  // namespace attnloom::testing
