// SPDX-License-Identifier: Apache-2.0
#include "plan/shared_rows.h"

#include <catch2/catch.hpp>
#include <random>

#include "plan/levels.h"
#include "shared_fixture.h"

namespace attnloom {
namespace {

using test::Batch;

struct Made {
  std::pmr::vector<loom::RequestRow> rows;
  SharedRows shared;
};

constexpr ShareRoom kAmple = {.entries = 1000,
                              .members = 1000,
                              .tokens = 1000,
                              .partial_rows = 100000,
                              .tile_rows = 64,
                              .least_tile_rows = 16};

Made make(const Spec& spec, const Workload& workload, const ShareRoom& room = kAmple) {
  REQUIRE(check_workload(spec, workload).ok());
  Made made{make_row_table(spec, workload).rows, SharedRows(heap())};
  made.shared = share_prefixes(spec, workload, room, made.rows);
  return made;
}

// Every (request, key) is walked once: by the request itself or by one shared entry, which reads
// the same pages.
void check_cover(const Spec& spec, const Batch& batch, const Made& made) {
  const int requests = static_cast<int>(batch.qo_indptr.size()) - 1;
  std::vector<int> covered(static_cast<std::size_t>(requests), 0);
  std::vector<int> last_entry(static_cast<std::size_t>(requests), -1);
  for (const SharedMember& member : made.shared.members) {
    const loom::RequestRow& entry = made.rows[member.entry];
    const int r = member.request;
    CHECK(member.entry > last_entry[r]);
    last_entry[r] = member.entry;
    CHECK(made.shared.walk_begin[member.entry] == covered[r]);
    for (int t = covered[r]; t < entry.walk_len; ++t) {
      const int page = t / spec.layout.page_size;
      if (batch.page_indices[entry.kv_begin + page] !=
          batch.page_indices[batch.kv_indptr[r] + page])
        FAIL("request " << r << ", token " << t);
    }
    covered[r] = entry.walk_len;
    // Its rows stand side by side, in one tile.
    const int first = member.row / spec.group_size;
    CHECK(entry.q_end * spec.group_size <= kAmple.tile_rows);
    const loom::RequestRow& own = made.rows[r];
    for (int token = 0; token < own.qo_len; ++token) {
      const loom::SharedToken listed = made.shared.tokens[entry.list_begin + first + token];
      CHECK(listed.token == own.qo_begin + token);
      CHECK(listed.position == own.kv_len - own.qo_len + token);
      CHECK(listed.position >= entry.walk_len - 1);
    }
  }
  for (int r = 0; r < requests; ++r) CHECK(made.shared.walk_begin[r] == covered[r]);
}

TEST_CASE("Every key of every request is walked exactly once, found or given") {
  std::mt19937 random(Catch::rngSeed());
  int shared = 0;
  for (int run = 0; run < 200; ++run) {
    const int page_size = run % 2 == 0 ? 1 : 16;
    Spec spec = test::paged_spec(page_size, run % 3 == 0 ? 7 : 4);
    spec.variant.mask.causal = run % 5 != 0;
    Batch batch = test::random_shared_batch(random, page_size, page_size == 1 ? 900 : 60);
    batch.group_size = spec.group_size;
    const Made made = make(spec, batch.view());
    if (made.shared.empty()) continue;
    ++shared;
    check_cover(spec, batch, made);
  }
  CHECK(shared > 50);
}

TEST_CASE("A prefix of three requests: two tiles, no request in both") {
  Spec spec = test::paged_spec(16, 4);
  Batch batch;
  batch.group_size = 4;
  std::vector<std::int32_t> prefix(40);
  for (int p = 0; p < 40; ++p) prefix[p] = p;
  for (const int own : {90, 91, 92}) {
    prefix.push_back(own);
    test::add_row(batch, prefix, 5, 16, 9);
    prefix.pop_back();
  }
  ShareRoom room = kAmple;
  room.tile_rows = 48;  // two requests of 20 rows
  const Made made = make(spec, batch.view(), room);
  REQUIRE(made.rows.size() == 5);
  CHECK(made.shared.walk_begin == std::pmr::vector<int>{640, 640, 640, 0, 0});
  CHECK(made.rows[3].q_end == 10);
  CHECK(made.rows[3].member_count == 2);
  CHECK(made.rows[3].qo_len == 0);
  CHECK(made.rows[3].kv_len == 640);
  CHECK(made.rows[4].q_end == 5);
  CHECK(made.rows[4].list_begin == 10);
  CHECK(made.rows[4].qo_begin == 2);
  CHECK(made.shared.members[1].row == 20);
  CHECK(made.shared.members[2].row == 0);
  CHECK(made.shared.tokens[12].token == 12);
  CHECK(made.shared.tokens[12].position == 649 - 5 + 2);

  SECTION("Without room it is not shared") {
    for (auto* bound : {&room.entries, &room.members, &room.tokens, &room.partial_rows}) {
      const std::int64_t ample = *bound;
      *bound = bound == &room.partial_rows ? 5 * 48 - 1
               : bound == &room.tokens     ? 14
               : bound == &room.members    ? 2
                                           : 1;
      const Made none = make(spec, batch.view(), room);
      CHECK(none.rows.size() == 3);
      CHECK(none.shared.empty());
      *bound = ample;
    }
    room.partial_rows = 5 * 48;
    CHECK(make(spec, batch.view(), room).rows.size() == 5);
  }
  SECTION("nor where a request fills half a tile by itself") {
    room.tile_rows = 39;
    CHECK(make(spec, batch.view(), room).shared.empty());
  }
}

TEST_CASE("Levels are taken as they are given") {
  Spec spec = test::paged_spec(16, 4);
  Batch batch;
  batch.group_size = 4;
  for (const int own : {90, 91, 92, 93}) test::add_row(batch, {1, own < 92 ? 2 : 3, own}, 1, 16, 9);
  const std::vector<std::int32_t> outer_qo{0, 4}, outer_pages{0, 1};
  const std::vector<std::int32_t> inner_qo{0, 2, 4}, inner_pages{0, 1, 2};
  Workload workload = batch.view();
  CHECK(make(spec, workload).shared.empty());  // too little to be worth it
  workload.levels = {{outer_qo, outer_pages}, {inner_qo, inner_pages}};
  workload.page_indices = {};
  const Made made = make(spec, workload);
  REQUIRE(made.rows.size() == 7);
  CHECK(made.shared.walk_begin == std::pmr::vector<int>{32, 32, 32, 32, 0, 16, 16});
  check_cover(spec, batch, made);
}

}  // namespace
}  // namespace attnloom
