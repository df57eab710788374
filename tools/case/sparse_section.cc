// SPDX-License-Identifier: Apache-2.0
#include "tools/case/sparse_section.h"

#include <algorithm>
#include <limits>

#include "reference/generators.h"
#include "tools/case/tensor_source.h"

namespace attnloom {
namespace {

constexpr std::int64_t kMaxInt32 = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kMostOffset = 8;  // tokens, exclusive, when starts are dealt
constexpr std::string_view kPaddedKeys[] = {"capacity", "start"};
constexpr std::string_view kBsrKeys[] = {"block", "indptr", "indices"};

// Refuses slots whose caches no case could hold.
Status check_slots(const JsonNode& node, const CaseOptions& options, const CaseFile& file) {
  if (!options.tensors) return ok_status();
  const std::int64_t extents[] = {file.batch(), file.kv_capacity, file.kv_heads,
                                  std::max(file.spec.head_dim.qk, file.spec.head_dim.vo)};
  if (element_count(extents)) return ok_status();
  return node.refuse("slots of " + std::to_string(file.kv_capacity) + " tokens have more than " +
                         std::to_string(kMaxElements) + " elements",
                     "use a smaller capacity");
}

Status deal_slots(const JsonNode& workload, const CaseOptions& options, CaseFile& file) {
  for (std::size_t r = 0; r < file.kv_len.size(); ++r) {
    file.kv_start.push_back(
        static_cast<std::int32_t>(reference::random_bits(options.page_seed, r) % kMostOffset));
    file.kv_capacity = std::max<std::int64_t>(file.kv_capacity, file.kv_len[r]);
  }
  file.kv_capacity += kMostOffset;
  return check_slots(workload, options, file);
}

Status check_block(const JsonNode& node, const Layout& layout) {
  ATTNLOOM_TRY(const std::vector<std::int32_t> block, node.int32s(1));
  if (block == std::vector<std::int32_t>{layout.block_rows, layout.block_columns})
    return ok_status();
  return node.wanted("the spec's layout.block [" + std::to_string(layout.block_rows) + ", " +
                     std::to_string(layout.block_columns) + "]");
}

Status check_indptr(const JsonNode& node, const CaseFile& file) {
  std::int64_t rows = 0;
  for (const std::int32_t qo_len : file.qo_len) rows += block_row_count(file.spec.layout, qo_len);
  const std::vector<std::int32_t>& indptr = file.block_indptr;
  if (std::ssize(indptr) != rows + 1) {
    return node.refuse("wanted " + std::to_string(rows + 1) +
                       " entries, one more than rows of blocks, given " +
                       std::to_string(indptr.size()));
  }
  if (indptr[0] != 0) return node.refuse("wanted 0 first, given " + std::to_string(indptr[0]));
  const auto falls = std::is_sorted_until(indptr.begin(), indptr.end());
  if (falls == indptr.end()) return ok_status();
  ATTNLOOM_TRY(const std::vector<JsonNode> entries, node.elements());
  return entries[static_cast<std::size_t>(falls - indptr.begin())].wanted(
      "an entry of at least " + std::to_string(*(falls - 1)));
}

Status check_indices(const JsonNode& node, const CaseFile& file) {
  const Layout& layout = file.spec.layout;
  if (std::ssize(file.block_indices) < file.block_indptr.back()) {
    return node.refuse("wanted " + std::to_string(file.block_indptr.back()) +
                       " entries, as indptr says, given " +
                       std::to_string(file.block_indices.size()));
  }
  ATTNLOOM_TRY(const std::vector<JsonNode> entries, node.elements());
  std::size_t row = 0;
  for (std::size_t r = 0; r < file.qo_len.size(); ++r) {
    const std::int64_t columns =
        (std::int64_t{file.kv_len[r]} + layout.block_columns - 1) / layout.block_columns;
    for (std::int64_t i = block_row_count(layout, file.qo_len[r]); i > 0; --i, ++row) {
      const auto begin = file.block_indices.begin() + file.block_indptr[row];
      for (auto at = begin; at != file.block_indices.begin() + file.block_indptr[row + 1]; ++at) {
        const JsonNode& entry = entries[static_cast<std::size_t>(at - file.block_indices.begin())];
        if (*at < 0 || *at >= columns) {
          return entry.wanted("one of the " + std::to_string(columns) + " blocks of request " +
                              std::to_string(r));
        }
        if (std::find(begin, at, *at) != at)
          return entry.wanted("each block once in a row of request " + std::to_string(r));
      }
    }
  }
  return ok_status();
}

}  // namespace

Status read_padded(const JsonNode& workload, const CaseOptions& options, CaseFile& file) {
  if (!workload.has("padded")) return deal_slots(workload, options, file);
  ATTNLOOM_TRY(const JsonNode padded, workload.member("padded"));
  ATTNLOOM_CHECK(padded.check_keys(kPaddedKeys));
  ATTNLOOM_TRY(const JsonNode capacity, padded.member("capacity"));
  ATTNLOOM_TRY(const JsonNode start, padded.member("start"));
  ATTNLOOM_TRY(file.kv_capacity, capacity.integer(1, kMaxInt32));
  ATTNLOOM_CHECK(check_slots(capacity, options, file));
  ATTNLOOM_TRY(file.kv_start, start.int32s());
  if (file.kv_start.size() != file.kv_len.size()) {
    return start.refuse("wanted " + std::to_string(file.kv_len.size()) +
                        " entries, one a request, given " + std::to_string(file.kv_start.size()));
  }
  ATTNLOOM_TRY(const std::vector<JsonNode> entries, start.elements());
  for (std::size_t r = 0; r < entries.size(); ++r) {
    const std::int64_t most = file.kv_capacity - file.kv_len[r];
    if (file.kv_start[r] <= most) continue;
    return entries[r].refuse(
        "request " + std::to_string(r) + ": wanted start + kv_len up to capacity " +
        std::to_string(file.kv_capacity) + ", given " + std::to_string(file.kv_start[r]) + " + " +
        std::to_string(file.kv_len[r]));
  }
  return ok_status();
}

Status read_block_rows(const JsonNode& workload, CaseFile& file) {
  ATTNLOOM_TRY(const JsonNode bsr, workload.member("bsr"));
  ATTNLOOM_CHECK(bsr.check_keys(kBsrKeys));
  ATTNLOOM_TRY(const JsonNode block, bsr.member("block"));
  ATTNLOOM_TRY(const JsonNode indptr, bsr.member("indptr"));
  ATTNLOOM_TRY(const JsonNode indices, bsr.member("indices"));
  ATTNLOOM_CHECK(check_block(block, file.spec.layout));
  ATTNLOOM_TRY(file.block_indptr, indptr.int32s());
  // As with pages, entries behind the last one in use may hold anything.
  ATTNLOOM_TRY(file.block_indices, indices.int32s(std::numeric_limits<std::int32_t>::min()));
  ATTNLOOM_CHECK(check_indptr(indptr, file));
  return check_indices(indices, file);
}

}  // namespace attnloom
