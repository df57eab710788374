// SPDX-License-Identifier: Apache-2.0
// Schedules of batches small enough to cut by hand, at a cost of a unit a row and a unit a key.
#include "tools/cli/plan_compare.h"

#include <catch2/catch.hpp>

#include "tools/cli/peer_chunking.h"

namespace attnloom::cli {
namespace {

constexpr CostModel kUnits{.alpha = 1, .beta = 1};

Spec ragged() {
  Spec spec;
  spec.head_dim = {64, 64};
  spec.group_size = 1;
  spec.layout.kv = KvLayout::kRagged;
  return spec;
}

// One query token against each length, in tiles of 16 rows and 64 keys; the plan itself keeps all
// in its first queue.
PlanView decodes(const Spec& spec, std::size_t ctas, const std::vector<std::int64_t>& lengths,
                 int kv_heads = 1) {
  PlanView plan{.group_size = spec.group_size,
                .kv_heads = kv_heads,
                .classes = {{.q = 16, .kv = 64}},
                .block_bytes = 1000};
  plan.queues.resize(ctas);
  for (const std::int64_t length : lengths) {
    const int entry = static_cast<int>(plan.entries.size());
    plan.entries.push_back(
        {.request = entry, .qo_len = 1, .q_end = 1, .kv_len = length, .walk_len = length});
    for (int head = 0; head < kv_heads; ++head) {
      const double cost = kUnits.of(16, length);
      plan.queues[0].push_back({.entry = entry,
                                .request = entry,
                                .rows = 1,
                                .kv_head = head,
                                .keys = {0, length},
                                .cost = cost,
                                .start = plan.makespan});
      plan.makespan += cost;
    }
  }
  return plan;
}

TEST_CASE("Algorithm 1 cuts chunks of an equal share and places the longest first") {
  // 12 x 512 keys on 32 CTAs: a share of 192. Chunks of 192, 192 and 128 cost 208, 208 and 144; 24
  // CTAs take one of 208, 8 one of 144, and the last four of 144 lie on top of those.
  const Spec spec = ragged();
  const ScheduleSummary paper =
      paper_schedule(spec, decodes(spec, 32, std::vector<std::int64_t>(12, 512)), kUnits);
  CHECK(paper.items == 36);
  CHECK(paper.split_tiles == 12);
  CHECK(paper.longest == 288);
  CHECK(paper.mean == 210);
  CHECK_FALSE(paper.block_bytes);
}

TEST_CASE("Algorithm 1 counts keys that a causal mask hides, and the measure does not") {
  // A prefill of 64 tokens in four tiles that see 16, 32, 48 and 64 keys, 80 each in the eyes of
  // the algorithm, and a decode of 40 keys: two CTAs take the tiles in turn, the first then the
  // decode.
  Spec spec = ragged();
  spec.variant.mask.causal = true;
  PlanView plan = decodes(spec, 2, {64, 40});
  plan.entries[0] = {.qo_len = 64, .q_end = 64, .kv_len = 64, .walk_len = 64};
  for (int tile = 1; tile < 4; ++tile)
    plan.queues[0].push_back({.q_row = 16 * tile, .rows = 16, .keys = {0, 64}});
  const ScheduleSummary paper = paper_schedule(spec, plan, kUnits);
  CHECK(paper.items == 5);
  CHECK(paper.longest == (16 + 16) + (16 + 48) + (16 + 40));
  CHECK(paper.mean == (5 * 16 + 16 + 32 + 48 + 64 + 40) / 2.0);
}

TEST_CASE("the peer splits while the heads of a batch fit the CTAs") {
  const Spec spec = ragged();
  // At most 32 items: four chunks of 128 for each of eight requests.
  ScheduleSummary peer =
      peer_chunking(spec, decodes(spec, 32, std::vector<std::int64_t>(8, 512)), kUnits);
  CHECK(peer.items == 32);
  CHECK(peer.split_tiles == 8);
  CHECK(peer.longest == 144);
  CHECK(peer.ratio() == 1);
  // Three chunks for each of twelve would be 36: two of 256.
  peer = peer_chunking(spec, decodes(spec, 32, std::vector<std::int64_t>(12, 512)), kUnits);
  CHECK(peer.items == 24);
  CHECK(peer.longest == 272);
  CHECK(peer.mean == 24 * 272 / 32.0);
  // Three tables of 24 ints, twice 13 offsets, the chunk, and 24 marks.
  CHECK(peer.block_bytes == 3 * 96 + 64 + 16 + 64 + 32);
}

TEST_CASE("the peer splits nothing beyond one wave, however long one request is") {
  const Spec spec = ragged();
  ScheduleSummary peer =
      peer_chunking(spec, decodes(spec, 32, std::vector<std::int64_t>(33, 512)), kUnits);
  CHECK(peer.items == 33);
  CHECK(peer.split_tiles == 0);
  CHECK(peer.ratio() == Approx(2 * 32 / 33.0));
  std::vector<std::int64_t> skewed(32, 64);
  skewed[5] = 4096;
  peer = peer_chunking(spec, decodes(spec, 32, skewed), kUnits);
  CHECK(peer.split_tiles == 0);
  CHECK(peer.longest == 4112);
  // Two heads of 17 requests are 34 tiles for 32 CTAs.
  peer = peer_chunking(spec, decodes(spec, 32, std::vector<std::int64_t>(17, 512), 2), kUnits);
  CHECK(peer.items == 34);
  CHECK(peer.longest == 2 * 528);
}

TEST_CASE("the peer takes one query tile for all, by the average") {
  // A prompt of 1009 tokens among 15 decodes has 64 rows on average: decodes then cost 64 rows.
  const Spec spec = ragged();
  PlanView plan = decodes(spec, 32, std::vector<std::int64_t>(16, 512));
  plan.entries[3].qo_len = plan.entries[3].q_end = 1009;
  CHECK(peer_chunking(spec, plan, {.alpha = 1, .beta = 0}).longest == 64);
  plan.entries[3].qo_len = plan.entries[3].q_end = 1025;
  CHECK(peer_chunking(spec, plan, {.alpha = 1, .beta = 0}).longest == 128);
  CHECK(peer_chunking(spec, plan, {.alpha = 1, .beta = 0}).items == 15 + 9);
}

TEST_CASE("the peer's chunks count pages, and only those that a window lets matter") {
  Spec spec = ragged();
  spec.layout.kv = KvLayout::kPaged;
  spec.layout.page_size = 100;
  PlanView plan = decodes(spec, 4, {1000});
  // Chunks of at least one page: ten pages in four items are three, three, three and one.
  CHECK(peer_chunking(spec, plan, kUnits).longest == 316);
  plan.window = 83;  // and 16 rows: 99 tokens, one page, of which the row sees 84 keys
  CHECK(peer_chunking(spec, plan, kUnits).items == 1);
  CHECK(peer_chunking(spec, plan, kUnits).longest == 16 + 84);
}

// Four requests of one token with 32 keys each behind a prefix of 640, which is one tile in `parts`
// items; request 3 has no keys of its own, so no item either.
PlanView behind_a_prefix(std::size_t ctas, int parts) {
  PlanView plan = decodes(ragged(), ctas, {672, 672, 672, 640});
  const int prefix = 4;
  plan.entries.push_back({.q_end = 4,
                          .kv_len = 640,
                          .walk_len = 640,
                          .level = 1,
                          .members = {0, 1, 2, 3},
                          .merges = {0, 1, 2, 3}});
  plan.queues[0].clear();
  plan.makespan = 0;
  for (int part = 0; part < parts; ++part) {
    const KeyRange keys{640 * part / parts, 640 * (part + 1) / parts};
    plan.queues[0].push_back({.entry = prefix, .rows = 4, .keys = keys, .merge = 0, .level = 1});
  }
  for (int r = 0; r < 4; ++r) {
    plan.entries[r].walk_begin = 640;
    if (r < 3) plan.queues[1].push_back({.entry = r, .request = r, .keys = {640, 672}, .merge = r});
  }
  return plan;
}

TEST_CASE("Algorithm 1 cuts the prefix tiles of the plan, and what is behind them") {
  // 640 + 3 x 32 keys on 4 CTAs: a share of 184, chunks of 192. The prefix costs 208 three times
  // and 80, suffixes 48, which lie on the 80. All four requests have several states.
  const ScheduleSummary paper = paper_schedule(ragged(), behind_a_prefix(4, 1), kUnits);
  CHECK(paper.items == 4 + 3);
  CHECK(paper.split_tiles == 4);
  CHECK(paper.prefix_tiles == 1);
  CHECK(paper.longest == 80 + 3 * 48);
  CHECK(paper.mean == (3 * 208 + 80 + 3 * 48) / 4.0);
}

TEST_CASE("the peer reads a shared prefix once for each request") {
  const ScheduleSummary peer = peer_chunking(ragged(), behind_a_prefix(4, 1), kUnits);
  const ScheduleSummary alone =
      peer_chunking(ragged(), decodes(ragged(), 4, {672, 672, 672, 640}), kUnits);
  CHECK(peer.items == 4);
  CHECK(peer.longest == 16 + 672);
  CHECK(peer.mean == (4 * (16 + 672) - 32) / 4.0);
  CHECK_FALSE(peer.prefix_tiles);
  // Three tables of 4 ints, 5 offsets, the chunk.
  CHECK(peer.block_bytes == 3 * 16 + 32 + 16);
  CHECK(alone.block_bytes == peer.block_bytes);
  CHECK(alone.longest == peer.longest);
}

TEST_CASE("output tiles with several states are those of all members of its prefixes") {
  // With one item of the prefix, request 3 has one state.
  CHECK(compare_schedules(ragged(), behind_a_prefix(4, 1), kUnits)[2].split_tiles == 3);
  const std::vector<ScheduleSummary> all =
      compare_schedules(ragged(), behind_a_prefix(4, 2), kUnits);
  CHECK(all[2].items == 2 + 3);
  CHECK(all[2].split_tiles == 4);
  CHECK(all[2].prefix_tiles == 1);
  const std::string text = comparison_to_text(all, 4);
  const std::string remark =
      "flashinfer_like has no sharing: each request reads its prefix for itself\n";
  CHECK(text.find(remark) == text.size() - remark.size());
  const Json json = comparison_to_json(all, 4)["schedules"];
  CHECK(json[0]["prefix_tiles"] == 1);
  CHECK(json[1]["prefix_tiles"].is_null());
  const auto alone = compare_schedules(ragged(), decodes(ragged(), 4, {672}), kUnits);
  CHECK(comparison_to_text(alone, 4).find("no sharing") == std::string::npos);
  CHECK(alone[2].prefix_tiles == 0);
}

TEST_CASE("the plan itself is summed up from its queues") {
  const Spec spec = ragged();
  PlanView plan = decodes(spec, 2, {100, 200});
  plan.queues[0][0].merge = 7;
  plan.queues[1] = {plan.queues[0][0]};
  const std::vector<ScheduleSummary> all = compare_schedules(spec, plan, kUnits);
  REQUIRE(all.size() == 3);
  CHECK(all[2].name == "attnloom");
  CHECK(all[2].items == 3);
  CHECK(all[2].split_tiles == 1);
  CHECK(all[2].longest == 116 + 216);
  CHECK(all[2].mean == (116 + 216 + 116) / 2.0);
  CHECK(all[2].block_bytes == 1000);
}

TEST_CASE("an empty batch compares") {
  const Spec spec = ragged();
  for (const ScheduleSummary& one : compare_schedules(spec, decodes(spec, 4, {}), kUnits)) {
    CHECK(one.items == 0);
    CHECK(one.ratio() == 1);
  }
}

}  // namespace
}  // namespace attnloom::cli
