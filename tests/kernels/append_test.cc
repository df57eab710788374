// SPDX-License-Identifier: Apache-2.0
// append through the engine: where each byte lands, in caches of any layout, and what 8-bit caches
// hold.
#include <catch2/catch.hpp>
#include <limits>

#include "kernels/append_rig.h"
#include "kernels/kernel_rig.h"

namespace attnloom::testing {
namespace {

Engine& engine() {
  static const std::unique_ptr<Engine> shared = make_test_engine();
  return *shared;
}

// Three requests, the second of which has no page. Tokens cross the border of a page of request 0
// and begin request 2; one row is not used.
AppendCase three_requests(std::int64_t page_size) {
  AppendCase given;
  given.pool.page_size = page_size;
  given.page_indptr = {0, 3, 3, 5};
  given.page_indices = {4, 0, 6, 5, 2};
  const auto border = static_cast<std::int32_t>(2 * page_size);
  given.batch_indices = {0, 0, -1, 0, 2, 2};
  given.positions = {border - 1, border, 0, border - 2, 0, static_cast<std::int32_t>(page_size)};
  if (page_size == 1) given.positions[3] = 0;
  return given;
}

void check_run(Engine& on, const AppendCase& given) {
  const AppendOutcome got = run(on, given);
  INFO(got.status.to_string());
  CHECK(got.status.ok());
  CHECK(got.finding == "");
  const std::vector<unsigned char> wanted = wanted_pool(given);
  REQUIRE(got.pool.size() == wanted.size());
  const auto differs = std::mismatch(wanted.begin(), wanted.end(), got.pool.begin());
  CHECK(differs.first - wanted.begin() == static_cast<std::ptrdiff_t>(wanted.size()));
  CHECK(got.rows == new_rows(given).bits);
}

}  // namespace

TEST_CASE("B35: rows land where strides, page table and position say, and nowhere else",
          "[append]") {
  const std::int64_t dims[] = {64, 96, 128, 256};
  int turn = 0;
  for (const PoolOrder order : kPoolOrders) {
    for (const std::int64_t page_size : {1, 3, 16}) {
      AppendCase given = three_requests(page_size);
      given.order = order;
      given.pool.qk = dims[turn % 4];
      given.pool.vo = dims[(turn + turn / 4) % 4];
      given.q = turn % 2 == 0 ? DType::kBf16 : DType::kF16;
      given.kv = given.q;
      given.pool.heads = 1 + turn % 3;
      given.mirrors = turn % 2 == 0;
      ++turn;
      INFO(static_cast<int>(order)
           << " page " << page_size << " dims " << given.pool.qk << " " << given.pool.vo);
      check_run(engine(), given);
    }
  }
}

TEST_CASE("the worked interleaved cache of one page", "[append]") {
  AppendCase given;
  given.pool = {.pages = 2, .page_size = 1, .heads = 1, .qk = 16, .vo = 16};
  given.order = PoolOrder::kInterleaved;
  given.page_indptr = {0, 1};
  given.page_indices = {1};
  given.batch_indices = {0};
  given.positions = {0};
  given.values = {5.0f};
  const AppendOutcome got = run(engine(), given);
  CHECK(got.finding == "");
  const std::vector<unsigned char> before = make_pool(given.pool, given.order, 2).bytes;
  // Page 1 is the upper half; 5.0 is 0x40a0 as bf16.
  for (std::size_t i = 0; i < 64; ++i) CHECK(got.pool[i] == before[i]);
  for (std::size_t i = 64; i < 128; ++i) CHECK(got.pool[i] == (i % 2 == 0 ? 0xa0 : 0x40));
}

TEST_CASE("without rows nothing is written", "[append]") {
  AppendCase given = three_requests(3);
  given.batch_indices = given.positions = {};
  check_run(engine(), given);
}

TEST_CASE("a row that names no place of the cache is left out", "[append]") {
  AppendCase given = three_requests(3);
  given.page_indices = {4, 0, 7, -1, 2};  // the pool has 7 pages
  constexpr std::int32_t kLeast = std::numeric_limits<std::int32_t>::min();
  constexpr std::int32_t kMost = std::numeric_limits<std::int32_t>::max();
  const struct {
    std::int32_t request, position;
  } rows[] = {{0, 5},  {2, 3},                     // places that are there
              {0, 6},  {2, 0},                     // pages 7 and -1
              {0, 9},  {2, 6},      {1, 0},        // behind the request's pages
              {0, -1}, {0, kLeast}, {0, kMost},    // no positions
              {3, 0},  {kMost, 0},  {kLeast, 0}};  // no requests
  given.batch_indices = given.positions = {};
  for (const auto& row : rows) {
    given.batch_indices.push_back(row.request);
    given.positions.push_back(row.position);
  }
  check_run(engine(), given);
  SECTION("also when page_indptr reaches behind the page indices") {
    given.page_indptr = {0, 3, 3, 1000};
    check_run(engine(), given);
  }
  SECTION("also when page_indptr is negative") {
    given.page_indptr = {0, 3, -5, 5};
    given.batch_indices = {2, 2};
    given.positions = {0, 100};
    const AppendOutcome got = run(engine(), given);
    CHECK(got.finding == "");
    CHECK(got.pool == make_pool(given.pool, given.order, 2).bytes);
  }
}

TEST_CASE("8-bit caches hold the quotient, rounded to nearest even and saturated", "[append]") {
  const auto a100 = make_test_engine(0, "a100");
  for (Engine* on : {&engine(), a100.get()}) {
    if (on_cuda() && on != &engine()) continue;
    for (const DType kv : {DType::kE4m3, DType::kE5m2}) {
      for (const KvScale scale : {KvScale::kNone, KvScale::kTensor, KvScale::kHead}) {
        AppendCase given = three_requests(16);
        given.kv = kv;
        given.kv_scale = scale;
        given.q = kv == DType::kE4m3 ? DType::kBf16 : DType::kF16;
        given.pool.qk = 96;
        given.order = kPoolOrders[static_cast<int>(scale)];
        check_run(*on, given);
        constexpr float kInfinity = std::numeric_limits<float>::infinity();
        given.values = {0.0f,   -0.0f,    1e-3f,     17.0f, 19.0f,  -448.0f,
                        465.0f, 60000.0f, kInfinity, -1e5f, 0.001f, NAN};
        check_run(*on, given);
      }
    }
  }
}

TEST_CASE("rows of a packed projection are read by their strides; NaN keeps its bits", "[append]") {
  AppendCase given = three_requests(3);
  given.packed = true;
  given.q_heads = 0;
  given.values = {1.0f, NAN, -std::numeric_limits<float>::infinity(), 3.0f, -0.0f};
  check_run(engine(), given);
}

TEST_CASE("a batch larger than one CTA's rows", "[append]") {
  AppendCase given;
  given.pool = {.pages = 9, .page_size = 5, .heads = 3, .qk = 64, .vo = 128};
  given.page_indptr = {0, 9};
  given.page_indices = {8, 1, 7, 2, 6, 3, 5, 4, 0};
  for (std::int32_t i = 0; i < 43; ++i) {
    given.batch_indices.push_back(0);
    given.positions.push_back(44 - i);
  }
  given.mirrors = true;
  check_run(engine(), given);
}

TEST_CASE("mutants of append are noticed", "[append][mutants]") {
  const auto notices = [](const char* from, const char* to, const AppendCase& given) {
    const auto one = make_edited_engine(
        0, [&](Source& source) { replace_once(source, "append.cuh", from, to); });
    const AppendOutcome got = run(*one, given);
    return got.finding != "" || got.pool != wanted_pool(given);
  };
  AppendCase out_of_range = three_requests(3);
  out_of_range.page_indices = {4, -1, 7, 3, 2};
  out_of_range.batch_indices = {0, 0, 2, 0, 0};
  out_of_range.positions = {6, 9, 1, -1, 3};
  CHECK(notices(" && place.page < args.pool_pages", "", out_of_range));
  CHECK(notices("place.page >= 0 && ", "", out_of_range));
  CHECK(notices("entry >= args.page_indptr[request + 1] || ", "", out_of_range));
  CHECK(notices(" || position < 0", "", out_of_range));
  AppendCase padded = three_requests(3);
  padded.order = PoolOrder::kPadded;
  CHECK(notices("place.page * args.k_page_stride",
                "place.page * args.k_token_stride * Config::kPageSize", padded));
  CHECK(notices("request < 0 || ", "", three_requests(3)));
}

}  // namespace attnloom::testing
