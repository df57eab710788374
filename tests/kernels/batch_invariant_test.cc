// SPDX-License-Identifier: Apache-2.0
// With batch_invariant a request has the same bits of o and lse alone and in any batch, on any
// number of CTAs.
#include <catch2/catch.hpp>

#include "kernels/graph_rig.h"

namespace attnloom::testing {
namespace {

constexpr int kMaxTokens = 220;
constexpr int kBatches = 12;  // of each of 12 pairs of subject and tile

struct Subject {
  int qo_len;
  int kv_len;
};

// A decode that is one item and one of several chunks, a few query rows, and more than fit the
// smallest class.
constexpr Subject kSubjects[] = {{1, 300}, {1, 1300}, {5, 1100}, {40, 700}};

struct Tile {
  const char* text;
  int group;
};
constexpr Tile kTiles[] = {
    {R"("auto")", 2}, {R"({"q": 16, "kv": 64})", 2}, {R"({"q": 1, "kv": 32})", 1}};

// The rows of one request.
RigOutput rows_of(const RigOutput& all, int first_token, int tokens, int elements) {
  const auto at = [](const auto& from, int begin, int count) {
    return std::decay_t<decltype(from)>(from.begin() + begin, from.begin() + begin + count);
  };
  return {at(all.o, first_token * elements, tokens * elements),
          at(all.lse, first_token * elements / 64, tokens * elements / 64)};
}

// The subject among up to three others before and behind it; its keys are where they always are.
struct Crowd {
  RigBatch batch;
  int first_token = 0;
};
Crowd random_crowd(std::mt19937& random, const Subject& subject) {
  Crowd crowd;
  const int others = static_cast<int>(random() % 4);
  const int place = static_cast<int>(random() % static_cast<unsigned>(others + 1));
  int page = 100;
  for (int r = 0; r <= others; ++r) {
    if (r == place) {
      crowd.first_token = crowd.batch.tokens();
      crowd.batch.add_paged(subject.qo_len, subject.kv_len, 0);
      continue;
    }
    const int queries[] = {0, 1, 1, 3, 30};
    const int qo_len = queries[random() % 5];
    const int kv_len = qo_len + static_cast<int>(random() % 600);
    crowd.batch.add_paged(qo_len, kv_len, page);
    page += 40;
  }
  return crowd;
}

}  // namespace

TEST_CASE("a request has the same bits alone and inside 100 random batches", "[graph]") {
  const Tile tile = kTiles[GENERATE(0, 1, 2)];
  CAPTURE(tile.text);
  GraphRig rig(
      {.group = tile.group, .tile = tile.text, .max_tokens = kMaxTokens, .kv_tokens = 4096});
  PlanLimits limits{.batch_invariant = true};
  GraphRig::Planned alone = rig.make_plan({}, limits);
  std::vector<GraphRig::Planned> crowded;
  for (const int ctas : {1, 7, 40}) {
    limits.max_ctas = ctas;
    crowded.push_back(rig.make_plan({}, limits));
  }
  const int elements = rig.elements_of_token();
  std::mt19937 random(5);
  int split = 0;
  for (const Subject& subject : kSubjects) {
    CAPTURE(subject.qo_len, subject.kv_len);
    const std::vector<std::uint16_t> own =
        random_bits(static_cast<std::size_t>(subject.qo_len * elements), 77);
    rig.set_queries(own);
    rig.update(alone, RigBatch().add_paged(subject.qo_len, subject.kv_len, 0));
    const RigOutput wanted = rig.run(alone);
    split += alone.plan->plan()->figures.split_tiles > 0 ? 1 : 0;
    for (int i = 0; i < kBatches; ++i) {
      CAPTURE(i);
      const Crowd crowd = random_crowd(random, subject);
      std::vector<std::uint16_t> queries =
          random_bits(static_cast<std::size_t>(crowd.batch.tokens() * elements), random());
      std::copy(own.begin(), own.end(), queries.begin() + crowd.first_token * elements);
      rig.set_queries(queries);
      GraphRig::Planned& planned = crowded[random() % crowded.size()];
      rig.update(planned, crowd.batch);
      REQUIRE(rows_of(rig.run(planned), crowd.first_token, subject.qo_len, elements) == wanted);
    }
  }
  CHECK(split >= 2);
  CHECK(split < 4);
}

}  // namespace attnloom::testing
