// SPDX-License-Identifier: Apache-2.0
// "padded", "bsr" and packed masks of a case.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "cases.h"

namespace attnloom {
namespace {

using Ints = std::vector<std::int32_t>;
constexpr std::uint16_t kOne = 0x3c00, kTwo = 0x4000, kThree = 0x4200, kNan = 0x7e00;

Json padded_case() {
  Json value = ragged_case({1, 1}, {2, 1});
  value["spec"]["layout"] = Json::parse(R"({"kv": "padded"})");
  value["workload"]["padded"] = Json::parse(R"({"capacity": 3, "start": [1, 0]})");
  value["inputs"]["v"] = Json::parse("[1, 2, 3]");
  return value;
}

// Blocks of 2 x 3: a request of 3 tokens and 7 keys, one of 2 tokens and 4 keys.
Json bsr_case() {
  Json value = ragged_case({3, 2}, {7, 4});
  value["spec"]["layout"] = Json::parse(R"({"kv": "bsr", "block": [2, 3]})");
  value["workload"]["bsr"] =
      Json::parse(R"({"block": [2, 3], "indptr": [0, 2, 2, 3], "indices": [2, 0, 1]})");
  return value;
}

void check_refused(Json value, const std::string& pointer, const Json& with,
                   const std::string& path, const std::string& cause) {
  value[Json::json_pointer(pointer)] = with;
  const Status status = refused(value);
  CHECK(status.code == Code::kWorkloadInvalid);
  CHECK(status.path == path);
  CHECK_THAT(status.cause, Catch::Contains(cause));
}

TEST_CASE("keys lie in their slots, and all else is NaN") {
  const CaseFile file = parsed(padded_case());
  CHECK(file.kv_indptr == Ints{0, 2, 3});
  std::vector<std::uint16_t> all;
  for (int i = 0; i < 6; ++i) all.push_back(element(file.v_image, i));
  CHECK(all == std::vector<std::uint16_t>{kNan, kOne, kTwo, kThree, kNan, kNan});
  CHECK(std::vector<std::int64_t>(file.v_image.shape, file.v_image.shape + 4) ==
        std::vector<std::int64_t>{2, 3, 1, 1});
}

TEST_CASE("left out, slots are dealt with room at both ends") {
  Json value = padded_case();
  value["workload"].erase("padded");
  const CaseFile file = parsed(value);
  CHECK(file.kv_capacity == 10);
  REQUIRE(file.kv_start.size() == 2);
  bool moved = false;
  for (std::uint64_t seed = 0; seed < 8; ++seed)
    moved |= parsed(value, "", {.page_seed = seed}).kv_start != file.kv_start;
  CHECK(moved);
}

TEST_CASE("padded: what is refused") {
  const std::string at = "/workload/padded";
  check_refused(padded_case(), at + "/start/0", 2, "$.workload.padded.start[0]",
                "capacity 3, given 2 + 2");
  check_refused(padded_case(), at + "/start/0", -1, "$.workload.padded.start[0]", "given -1");
  check_refused(padded_case(), at + "/start", Json{0}, "$.workload.padded.start",
                "wanted 2 entries, one a request, given 1");
  check_refused(padded_case(), at + "/capacity", 0, "$.workload.padded.capacity", "given 0");
  check_refused(padded_case(), at + "/capacity", 2147483647, "$.workload.padded.capacity",
                "more than 2147483648 elements");
  check_refused(padded_case(), at + "/strat", 1, "$.workload.padded.strat", "unknown key");
  check_refused(ragged_case({1}, {1}), at, Json::object(), "$.workload.padded", "not \"padded\"");
}

TEST_CASE("bsr: lists and what the reference makes of them") {
  const CaseFile file = parsed(bsr_case());
  CHECK(file.block_indptr == Ints{0, 2, 2, 3});
  CHECK(file.block_indices == Ints{2, 0, 1});
  CHECK(file.k_image.rank == 3);
  const Workload workload = file.workload();
  CHECK(workload.block_indptr.size() == 4);
  CHECK(workload.block_indices.size() == 3);
}

TEST_CASE("bsr: what is refused") {
  const std::string at = "/workload/bsr";
  Json missing = bsr_case();
  missing["workload"].erase("bsr");
  CHECK(refused(missing).path == "$.workload.bsr");
  check_refused(bsr_case(), at + "/block", Json{2, 4}, "$.workload.bsr.block",
                "wanted the spec's layout.block [2, 3], given [2,4]");
  check_refused(bsr_case(), at + "/block", Json{2, 0}, "$.workload.bsr.block[1]", "given 0");
  check_refused(bsr_case(), at + "/indptr", Json{0, 2, 3}, "$.workload.bsr.indptr",
                "wanted 4 entries, one more than rows of blocks, given 3");
  check_refused(bsr_case(), at + "/indptr/0", 1, "$.workload.bsr.indptr", "wanted 0 first");
  check_refused(bsr_case(), at + "/indptr/2", 1, "$.workload.bsr.indptr[2]", "at least 2, given 1");
  check_refused(bsr_case(), at + "/indices/0", 3, "$.workload.bsr.indices[0]",
                "wanted one of the 3 blocks of request 0, given 3");
  check_refused(bsr_case(), at + "/indices/2", 2, "$.workload.bsr.indices[2]",
                "wanted one of the 2 blocks of request 1, given 2");
  check_refused(bsr_case(), at + "/indices/1", 2, "$.workload.bsr.indices[1]",
                "each block once in a row of request 0, given 2");
  check_refused(bsr_case(), at + "/indices", Json{2, 0}, "$.workload.bsr.indices",
                "wanted 3 entries, as indptr says, given 2");
  check_refused(ragged_case({1}, {1}), at, Json::object(), "$.workload.bsr", "not \"bsr\"");
}

TEST_CASE("B13: masks are packed lowest bit first, each request from a byte of its own") {
  Json value = ragged_case({1, 0, 2}, {3, 4, 5});
  value["spec"]["variant"] = Json::parse(R"({"mask": {"custom": true}})");
  value["workload"]["mask"] =
      Json::parse(R"({"custom": [[[1, 0, 1]], [], [[1, 1, 0, 1, 1], [0, 0, 0, 1, 1]]]})");
  CHECK(parsed(value).packed_masks() ==
        std::vector<std::byte>{std::byte{5}, std::byte{27}, std::byte{3}});
}

}  // namespace
}  // namespace attnloom
