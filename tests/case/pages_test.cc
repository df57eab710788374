// SPDX-License-Identifier: Apache-2.0
#include "tools/case/pages.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "tests/case/cases.h"

namespace attnloom {
namespace {

using Ints = std::vector<std::int32_t>;
constexpr std::uint16_t kNan = 0x7E00;
constexpr std::uint16_t kOne = 0x3C00, kTwo = 0x4000, kThree = 0x4200, kFour = 0x4400,
                        kFive = 0x4500;

std::vector<std::uint16_t> elements(const CacheImage& image) {
  std::vector<std::uint16_t> all;
  for (std::size_t i = 0; i < image.bytes.size() / 2; ++i) {
    all.push_back(element(image, static_cast<std::int64_t>(i)));
  }
  return all;
}

Json with_pages(Json value, const Ints& indptr, const Ints& indices, const Ints& last, int pool) {
  value["workload"]["pages"] =
      Json{{"indptr", indptr}, {"indices", indices}, {"last_page_len", last}, {"pool", pool}};
  return value;
}

TEST_CASE("Keys lie in their pages, and what nobody owns is NaN") {
  Json value = with_pages(paged_case({1, 1}, {3, 1}), {0, 2, 3}, {3, 0, 2, -1}, {1, 1}, 4);
  value["inputs"]["v"] = {1, 2, 3, 4};
  const CaseFile file = parsed(value);
  CHECK(elements(file.v_image) ==
        std::vector<std::uint16_t>{kThree, kNan, kNan, kNan, kFour, kNan, kOne, kTwo});
  CHECK(file.v_image.rank == 4);
  CHECK(file.page_indices == Ints{3, 0, 2, -1});
}

TEST_CASE("A slot listed twice is written by its first owner, and the second reads it") {
  // Both requests begin with page 1; the second goes further in it.
  Json value = with_pages(paged_case({1, 1}, {1, 3}), {0, 1, 3}, {1, 1, 0}, {1, 1}, 3);
  value["inputs"]["v"] = {1, 2, 3, 4};
  value["inputs"]["k"] = {5, 4, 3, 2};
  const CaseFile file = parsed(value);
  CHECK(elements(file.v_image) ==
        std::vector<std::uint16_t>{kFour, kNan, kOne, kThree, kNan, kNan});
  CHECK(file.v.values == std::vector<double>{1, 1, 3, 4});
  CHECK(file.v.bits == std::vector<std::uint16_t>{kOne, kOne, kThree, kFour});
  CHECK(file.k.values == std::vector<double>{5, 5, 3, 2});
  CHECK(element(file.k_image, 2) == kFive);
}

TEST_CASE("A page twice in one request") {
  Json value = with_pages(paged_case({1}, {4}), {0, 2}, {0, 0}, {2}, 1);
  value["inputs"]["v"] = {1, 2, 3, 4};
  const CaseFile file = parsed(value);
  CHECK(file.v.values == std::vector<double>{1, 2, 1, 2});
}

TEST_CASE("Left out, the pages are dealt: each its own, shuffled, one to spare") {
  const Json value = paged_case({1, 1, 1}, {40, 0, 41});
  const CaseFile file = parsed(value);
  CHECK(file.kv_indptr == Ints{0, 20, 20, 41});
  CHECK(file.last_page_len == Ints{2, 0, 1});
  CHECK(file.pool_pages == 42);
  REQUIRE(file.page_indices.size() == 41);
  const std::set<std::int32_t> distinct(file.page_indices.begin(), file.page_indices.end());
  CHECK(distinct.size() == 41);
  CHECK(*distinct.begin() >= 0);
  CHECK(*distinct.rbegin() < 42);
  CHECK_FALSE(std::is_sorted(file.page_indices.begin(), file.page_indices.end()));
  CHECK(parsed(value).page_indices == file.page_indices);
  CHECK(parsed(value, "", {.page_seed = 1}).page_indices != file.page_indices);
  // 81 tokens are owned, all else of the 84 slots is NaN.
  const auto all = elements(file.k_image);
  CHECK(all.size() == 84);
  CHECK(std::count(all.begin(), all.end(), kNan) == 3);
}

// 2 heads of dimension 2 in f16; a token's value is its number, plus 1 for the second head.
Json two_heads(Json value) {
  value["workload"]["heads"] = Json{{"q", 2}, {"kv", 2}};
  value["spec"]["head_dim"] = Json{{"qk", 2}, {"vo", 2}};
  value["inputs"]["v"] = Json::parse("[[1, 2], [2, 3], [3, 4]]");
  return value;
}

TEST_CASE("NHD and HND, paged") {
  Json value = two_heads(with_pages(paged_case({1}, {3}), {0, 2}, {1, 0}, {1}, 2));
  const CaseFile nhd = parsed(value);
  CHECK(elements(nhd.v_image) == std::vector<std::uint16_t>{kThree, kThree, kFour, kFour, kNan,
                                                            kNan, kNan, kNan, kOne, kOne, kTwo,
                                                            kTwo, kTwo, kTwo, kThree, kThree});
  CHECK(std::vector<std::int64_t>(nhd.v_image.shape, nhd.v_image.shape + 4) ==
        std::vector<std::int64_t>{2, 2, 2, 2});
  CHECK(std::vector<std::int64_t>(nhd.v_image.strides, nhd.v_image.strides + 4) ==
        std::vector<std::int64_t>{8, 4, 2, 1});
  value["workload"]["kv_order"] = "HND";
  const CaseFile hnd = parsed(value);
  CHECK(elements(hnd.v_image) == std::vector<std::uint16_t>{kThree, kThree, kNan, kNan, kFour,
                                                            kFour, kNan, kNan, kOne, kOne, kTwo,
                                                            kTwo, kTwo, kTwo, kThree, kThree});
  CHECK(std::vector<std::int64_t>(hnd.v_image.strides, hnd.v_image.strides + 4) ==
        std::vector<std::int64_t>{8, 2, 4, 1});
}

TEST_CASE("NHD and HND, ragged") {
  Json value = two_heads(ragged_case({1}, {3}));
  const CaseFile nhd = parsed(value);
  CHECK(elements(nhd.v_image) == std::vector<std::uint16_t>{kOne, kOne, kTwo, kTwo, kTwo, kTwo,  //
                                                            kThree, kThree, kThree, kThree, kFour,
                                                            kFour});
  CHECK(std::vector<std::int64_t>(nhd.v_image.shape, nhd.v_image.shape + 3) ==
        std::vector<std::int64_t>{3, 2, 2});
  value["workload"]["kv_order"] = "HND";
  const CaseFile hnd = parsed(value);
  CHECK(elements(hnd.v_image) ==
        std::vector<std::uint16_t>{kOne, kOne, kTwo, kTwo, kThree, kThree,  //
                                   kTwo, kTwo, kThree, kThree, kFour, kFour});
  CHECK(std::vector<std::int64_t>(hnd.v_image.strides, hnd.v_image.strides + 3) ==
        std::vector<std::int64_t>{2, 6, 1});
}

}  // namespace
}  // namespace attnloom
