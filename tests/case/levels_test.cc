// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include "tests/case/cases.h"

namespace attnloom {
namespace {

using Ints = std::vector<std::int32_t>;

// Three requests of one query: pages of 2 tokens, the first of them everybody's.
Json with_levels() {
  Json value = paged_case({1, 1, 1}, {5, 2, 4});
  value["workload"]["levels"] = Json::parse(R"([
    {"qo_indptr": [0, 3], "pages": {"indptr": [0, 1], "indices": [4], "last_page_len": [2]}},
    {"qo_indptr": [0, 1, 2, 3],
     "pages": {"indptr": [0, 2, 2, 3], "indices": [2, 0, 1], "last_page_len": [1, 0, 2]}}])");
  return value;
}

std::string cause(Json value, const char* pointer, Json replacement, std::string* path) {
  value[Json::json_pointer(pointer)] = std::move(replacement);
  const Status status = refused(value);
  CHECK(status.code == Code::kWorkloadInvalid);
  *path = status.path;
  return status.cause;
}

TEST_CASE("Levels make the page rows, one behind the other") {
  const CaseFile file = parsed(with_levels());
  CHECK(file.kv_indptr == Ints{0, 3, 4, 6});
  CHECK(file.page_indices == Ints{4, 2, 0, 4, 4, 1});
  CHECK(file.last_page_len == Ints{1, 2, 2});
  CHECK(file.pool_pages == 6);
  const Workload workload = file.workload();
  REQUIRE(workload.levels.size() == 2);
  CHECK(workload.levels[0].qo_indptr[1] == 3);
  CHECK(workload.levels[1].page_indptr[3] == 3);
}

TEST_CASE("Levels beside page rows must agree with them") {
  Json value = with_levels();
  value["workload"]["pages"] = Json::parse(
      R"({"indptr": [0, 3, 4, 6], "indices": [4, 2, 0, 4, 4, 1], "last_page_len": [1, 2, 2], "pool": 9})");
  CHECK(parsed(value).pool_pages == 9);
  value["workload"]["levels"].erase(1);
  CHECK(parsed(value).levels.size() == 1);
  std::string path;
  CHECK(cause(value, "/workload/pages/indices/3", 5, &path)
            .find("request 1: its pages in workload.pages do not begin") != std::string::npos);
  CHECK(path == "$.workload.levels");
}

TEST_CASE("Levels that make no page rows are refused") {
  const Json base = with_levels();
  std::string path;
  const auto check = [&](const char* pointer, Json replacement, const char* want_path,
                         const char* want) {
    const std::string given = cause(base, pointer, std::move(replacement), &path);
    CHECK(path == want_path);
    CHECK_THAT(given, Catch::Contains(want));
  };
  check("/workload/levels", 1, "$.workload.levels", "list");
  check("/workload/levels/0/pages/last_page_len/0", 1, "$.workload.levels",
        "request 0: wanted whole pages in all levels but its last");
  check("/workload/levels/1/pages/last_page_len/2", 1, "$.workload.levels",
        "request 2: wanted pages of kv_len 4 tokens over all levels, given 3");
  check("/workload/levels/1/pages/last_page_len/2", 3, "$.workload.levels", "request 2");
  check("/workload/levels/0/qo_indptr", Json{0, 2}, "$.workload.levels[0].qo_indptr",
        "wanted the 3 query tokens");
  check("/workload/levels/0/qo_indptr", Json{1, 3}, "$.workload.levels[0].qo_indptr",
        "begins with 0");
  check("/workload/levels/1/pages/indptr", Json{0, 2, 1, 3}, "$.workload.levels[1].pages.indptr",
        "never decrease");
  check("/workload/levels/1/pages/indptr", Json{0, 3}, "$.workload.levels[1].pages",
        "wanted 4 entries in indptr and 3 in last_page_len");
  check("/workload/levels/1/pages/indices", Json{2, 0}, "$.workload.levels[1].pages.indices",
        "as many entries as indptr ends with");
  check("/workload/levels/1/pages/indices/0", -1, "$.workload.levels[1].pages.indices[0]",
        "given -1");
  check("/workload/levels/0/pool", 3, "$.workload.levels[0].pool", "");
}

}  // namespace
}  // namespace attnloom
