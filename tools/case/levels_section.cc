// SPDX-License-Identifier: Apache-2.0
#include "tools/case/levels_section.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

namespace attnloom {
namespace {

constexpr std::int64_t kMaxInt32 = std::numeric_limits<std::int32_t>::max();
constexpr std::string_view kLevelKeys[] = {"qo_indptr", "pages"};
constexpr std::string_view kPageKeys[] = {"indptr", "indices", "last_page_len"};

struct Level {
  CaseLevel level;
  std::vector<std::int32_t> indices;
  std::vector<std::int32_t> last_page_len;  // of each group
};

Status check_indptr(const JsonNode& node, const std::vector<std::int32_t>& indptr) {
  if (indptr.empty() || indptr[0] != 0) return node.refuse("wanted a list that begins with 0");
  if (!std::is_sorted(indptr.begin(), indptr.end()))
    return node.refuse("wanted entries that never decrease");
  return ok_status();
}

Result<Level> read_level(const JsonNode& node, const CaseFile& file) {
  ATTNLOOM_CHECK(node.check_keys(kLevelKeys));
  ATTNLOOM_TRY(const JsonNode qo_indptr, node.member("qo_indptr"));
  ATTNLOOM_TRY(const JsonNode pages, node.member("pages"));
  ATTNLOOM_CHECK(pages.check_keys(kPageKeys));
  ATTNLOOM_TRY(const JsonNode indptr, pages.member("indptr"));
  ATTNLOOM_TRY(const JsonNode indices, pages.member("indices"));
  ATTNLOOM_TRY(const JsonNode last_page_len, pages.member("last_page_len"));
  Level level;
  ATTNLOOM_TRY(level.level.qo_indptr, qo_indptr.int32s());
  ATTNLOOM_TRY(level.level.page_indptr, indptr.int32s());
  ATTNLOOM_TRY(level.indices, indices.int32s());
  ATTNLOOM_TRY(level.last_page_len, last_page_len.int32s());
  ATTNLOOM_CHECK(check_indptr(qo_indptr, level.level.qo_indptr));
  ATTNLOOM_CHECK(check_indptr(indptr, level.level.page_indptr));
  const std::size_t groups = level.level.qo_indptr.size() - 1;
  if (level.level.page_indptr.size() != groups + 1 || level.last_page_len.size() != groups) {
    return pages.refuse("wanted " + std::to_string(groups + 1) + " entries in indptr and " +
                        std::to_string(groups) + " in last_page_len, as qo_indptr has " +
                        std::to_string(groups) + " groups");
  }
  if (std::ssize(level.indices) != level.level.page_indptr.back())
    return indices.refuse("wanted as many entries as indptr ends with");
  if (level.level.qo_indptr.back() != file.qo_indptr.back()) {
    return qo_indptr.refuse("wanted the " + std::to_string(file.qo_indptr.back()) +
                            " query tokens of the batch last");
  }
  return level;
}

// Of a request in one level; its group is the one that holds its first query token.
std::span<const std::int32_t> pages_of(const Level& level, std::int32_t token, std::size_t* group) {
  const std::vector<std::int32_t>& borders = level.level.qo_indptr;
  *group = static_cast<std::size_t>(std::upper_bound(borders.begin(), borders.end() - 1, token) -
                                    borders.begin()) -
           1;
  const std::int32_t begin = level.level.page_indptr[*group];
  const std::int32_t end = level.level.page_indptr[*group + 1];
  return std::span(level.indices)
      .subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
}

struct Row {
  std::vector<std::int32_t> pages;
  std::int32_t last_page_len = 0;
};

Result<Row> row_of(const JsonNode& node, const std::vector<Level>& levels, const CaseFile& file,
                   int request) {
  Row row;
  const std::int32_t page_size = file.spec.layout.page_size;
  if (file.qo_len[static_cast<std::size_t>(request)] == 0) return row;
  for (const Level& level : levels) {
    if (level.level.qo_indptr.size() < 2) continue;
    std::size_t group = 0;
    const auto pages = pages_of(level, file.qo_indptr[static_cast<std::size_t>(request)], &group);
    if (pages.empty()) continue;
    if (!row.pages.empty() && row.last_page_len != page_size) {
      return node.refuse("request " + std::to_string(request) +
                         ": wanted whole pages in all levels but its last");
    }
    row.pages.insert(row.pages.end(), pages.begin(), pages.end());
    row.last_page_len = level.last_page_len[group];
  }
  return row;
}

Status refuse_tokens(const JsonNode& node, const CaseFile& file, int request, std::int64_t tokens) {
  return node.refuse("request " + std::to_string(request) + ": wanted pages of kv_len " +
                     std::to_string(file.kv_len[static_cast<std::size_t>(request)]) +
                     " tokens over all levels, given " + std::to_string(tokens));
}

// The page rows that the levels make.
Status make_rows(const JsonNode& node, const std::vector<Level>& levels, CaseFile& file) {
  const std::int64_t page_size = file.spec.layout.page_size;
  file.kv_indptr = {0};
  std::int32_t largest = -1;
  for (int r = 0; r < file.batch(); ++r) {
    ATTNLOOM_TRY(const Row row, row_of(node, levels, file, r));
    const std::int64_t tokens =
        row.pages.empty() ? 0 : (std::ssize(row.pages) - 1) * page_size + row.last_page_len;
    const bool whole =
        row.pages.empty() || (row.last_page_len >= 1 && row.last_page_len <= page_size);
    if (!whole || tokens != file.kv_len[static_cast<std::size_t>(r)])
      return refuse_tokens(node, file, r, tokens);
    for (const std::int32_t page : row.pages) largest = std::max(largest, page);
    file.page_indices.insert(file.page_indices.end(), row.pages.begin(), row.pages.end());
    file.last_page_len.push_back(row.last_page_len);
    file.kv_indptr.push_back(static_cast<std::int32_t>(file.page_indices.size()));
  }
  if (largest > kMaxInt32 - 2) return node.refuse("a page number is larger than any pool");
  file.pool_pages = largest + 2;
  return ok_status();
}

// Given page rows begin with what the levels list.
Status compare_rows(const JsonNode& node, const std::vector<Level>& levels, const CaseFile& file) {
  for (int r = 0; r < file.batch(); ++r) {
    ATTNLOOM_TRY(const Row row, row_of(node, levels, file, r));
    const auto begin = file.page_indices.begin() + file.kv_indptr[static_cast<std::size_t>(r)];
    const auto end = file.page_indices.begin() + file.kv_indptr[static_cast<std::size_t>(r) + 1];
    if (std::ssize(row.pages) > end - begin ||
        !std::equal(row.pages.begin(), row.pages.end(), begin)) {
      return node.refuse("request " + std::to_string(r) +
                         ": its pages in workload.pages do not begin with those of its levels");
    }
  }
  return ok_status();
}

}  // namespace

Status read_levels(const JsonNode& levels, bool has_pages, CaseFile& file) {
  ATTNLOOM_TRY(const std::vector<JsonNode> nodes, levels.elements());
  std::vector<Level> read;
  for (const JsonNode& node : nodes) {
    ATTNLOOM_TRY(Level level, read_level(node, file));
    read.push_back(std::move(level));
  }
  ATTNLOOM_CHECK(has_pages ? compare_rows(levels, read, file) : make_rows(levels, read, file));
  for (Level& level : read) file.levels.push_back(std::move(level.level));
  return ok_status();
}

}  // namespace attnloom
