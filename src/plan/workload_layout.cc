// SPDX-License-Identifier: Apache-2.0
#include "plan/workload_layout.h"

#include <memory_resource>
#include <utility>
#include <vector>

namespace attnloom {

std::string text(std::int64_t value) {
  return std::to_string(value);
}

std::string element(std::string_view array, std::int64_t index) {
  return std::string("workload.").append(array) + "[" + text(index) + "]";
}

Status invalid(std::string path, std::string cause, std::string remedy) {
  return make_error(Code::kWorkloadInvalid, std::move(path), std::move(cause), std::move(remedy));
}

Status check_length(std::string_view array, std::size_t given, std::int64_t wanted,
                    std::string_view remedy) {
  if (static_cast<std::int64_t>(given) == wanted) return ok_status();
  return invalid(
      std::string("workload.").append(array),
      "wanted " + text(wanted) + " entries, given " + text(static_cast<std::int64_t>(given)),
      std::string(remedy));
}

Status check_indptr(std::string_view array, std::span<const std::int32_t> indptr,
                    std::string_view owner) {
  if (indptr[0] != 0) {
    return invalid(element(array, 0), "wanted 0, given " + text(indptr[0]), "indptr starts at 0");
  }
  for (std::size_t i = 1; i < indptr.size(); ++i) {
    if (indptr[i] >= indptr[i - 1]) continue;
    return invalid(element(array, static_cast<std::int64_t>(i)),
                   std::string(owner) + " " + text(static_cast<std::int64_t>(i) - 1) +
                       ": wanted at least " + text(indptr[i - 1]) + ", given " + text(indptr[i]),
                   "indptr never decreases; check that the array is int32 and contiguous");
  }
  return ok_status();
}

namespace {

constexpr const char* kBatchRemedy = "the batch size is that of qo_indptr, less one";

Status check_pages(const Spec& spec, const Workload& workload) {
  ATTNLOOM_CHECK(
      check_length("last_page_len", workload.last_page_len.size(), workload.batch(), kBatchRemedy));
  const int page_size = spec.layout.page_size;
  for (int r = 0; r < workload.batch(); ++r) {
    const bool has_pages = workload.kv_indptr[r + 1] > workload.kv_indptr[r];
    const int given = workload.last_page_len[r];
    if (has_pages ? given >= 1 && given <= page_size : given == 0) continue;
    return invalid(element("last_page_len", r),
                   "request " + text(r) +
                       (has_pages ? ": wanted 1 to page_size " + text(page_size)
                                  : std::string(": wanted 0 for a request without pages")) +
                       ", given " + text(given),
                   "last_page_len counts the tokens in the request's last page");
  }
  if (workload.pool_pages < 0 || workload.pool_pages > std::numeric_limits<std::int32_t>::max()) {
    return invalid("workload.pool_pages",
                   "wanted 0 (not given) to 2147483647, given " + text(workload.pool_pages),
                   "page indices are int32");
  }
  return ok_status();
}

// A negative page counts as larger than any. Four at a time: one running maximum would wait for
// itself, and an engine passes every index of every step.
std::int64_t largest_page(std::span<const std::int32_t> pages) {
  std::uint32_t largest[4] = {};
  std::size_t i = 0;
  for (; i + 4 <= pages.size(); i += 4) {
    for (std::size_t lane = 0; lane < 4; ++lane)
      largest[lane] = std::max(largest[lane], static_cast<std::uint32_t>(pages[i + lane]));
  }
  for (; i < pages.size(); ++i)
    largest[0] = std::max(largest[0], static_cast<std::uint32_t>(pages[i]));
  return *std::max_element(largest, largest + 4);
}

// Entries behind the last indptr entry belong to nobody and may hold anything.
Status check_page_indices(const Workload& workload) {
  if (workload.page_indices.empty()) return ok_status();
  const std::int64_t used = workload.kv_indptr.back();
  if (static_cast<std::int64_t>(workload.page_indices.size()) < used) {
    return invalid("workload.page_indices",
                   "wanted at least " + text(used) + " entries, given " +
                       text(static_cast<std::int64_t>(workload.page_indices.size())),
                   "kv_indptr ends at the number of entries in use");
  }
  const std::int64_t limit = workload.pool_pages > 0 ? workload.pool_pages : std::int64_t{1} << 31;
  if (largest_page(workload.page_indices.first(static_cast<std::size_t>(used))) < limit)
    return ok_status();
  for (int r = 0; r < workload.batch(); ++r) {
    for (std::int32_t i = workload.kv_indptr[r]; i < workload.kv_indptr[r + 1]; ++i) {
      const std::int32_t page = workload.page_indices[i];
      if (page >= 0 && page < limit) continue;
      const std::string wanted =
          workload.pool_pages > 0 ? "0 to " + text(workload.pool_pages - 1) : "0 or more";
      return invalid(element("page_indices", i),
                     "request " + text(r) + ", entry " + text(i - workload.kv_indptr[r]) +
                         ": wanted a page from " + wanted + ", given " + text(page),
                     "pad only behind the last entry that kv_indptr names");
    }
  }
  return ok_status();
}

// The largest start + length, and where it is: what a slot must hold.
Status check_padded(const Workload& workload) {
  const bool starts = !workload.kv_start.empty();
  if (starts) {
    ATTNLOOM_CHECK(
        check_length("kv_start", workload.kv_start.size(), workload.batch(), kBatchRemedy));
  }
  if (workload.kv_capacity < 0 || workload.kv_capacity > kMaxLength) {
    return invalid(
        "workload.kv_capacity",
        "wanted 0 (not given) to " + text(kMaxLength) + ", given " + text(workload.kv_capacity),
        "it counts the tokens of a request's slot");
  }
  const std::int64_t capacity = workload.kv_capacity == 0 ? kMaxLength : workload.kv_capacity;
  for (int r = 0; r < workload.batch(); ++r) {
    const std::int64_t start = starts ? workload.kv_start[r] : 0;
    if (start < 0) {
      return invalid(element("kv_start", r),
                     "request " + text(r) + ": wanted 0 or more, given " + text(start),
                     "it counts the unused tokens at the head of the slot");
    }
    const std::int64_t tokens = std::int64_t{workload.kv_indptr[r + 1]} - workload.kv_indptr[r];
    if (start + tokens <= capacity) continue;
    return invalid(starts ? element("kv_start", r) : element("kv_indptr", r + 1),
                   "request " + text(r) + ": wanted start + length up to the capacity " +
                       text(capacity) + ", given " + text(start) + " + " + text(tokens),
                   "give the request a larger slot");
  }
  return ok_status();
}

// The rows of blocks of one request: how many columns they list, and with a mirror which ones.
class BlockRowCheck {
 public:
  BlockRowCheck(const Spec& spec, const Workload& workload, Memory* memory)
      : spec_(spec), workload_(workload), seen_in_row_(memory) {}

  Status run() {
    const Layout& layout = spec_.layout;
    std::int64_t rows = 0;
    for (int r = 0; r < workload_.batch(); ++r)
      rows += block_row_count(layout, workload_.qo_indptr[r + 1] - workload_.qo_indptr[r]);
    ATTNLOOM_CHECK(check_length("block_indptr", workload_.block_indptr.size(), rows + 1,
                                "one entry for each layout.block[0] query tokens of a request, "
                                "and one more"));
    ATTNLOOM_CHECK(check_indptr("block_indptr", workload_.block_indptr, "row of blocks"));
    ATTNLOOM_CHECK(check_mirror());
    std::int64_t row = 0;
    for (int r = 0; r < workload_.batch(); ++r) {
      const std::int64_t end =
          row + block_row_count(layout, workload_.qo_indptr[r + 1] - workload_.qo_indptr[r]);
      for (; row < end; ++row) ATTNLOOM_CHECK(check_row(r, row));
    }
    return ok_status();
  }

 private:
  Status check_mirror() const {
    const auto given = static_cast<std::int64_t>(workload_.block_indices.size());
    if (given == 0 || given >= workload_.block_indptr.back()) return ok_status();
    return invalid(
        "workload.block_indices",
        "wanted at least " + text(workload_.block_indptr.back()) + " entries, given " + text(given),
        "block_indptr ends at the number of entries in use");
  }

  static std::string who(int request) { return "request " + text(request) + ": "; }

  Status check_row(int request, std::int64_t row) {
    const std::int64_t size = spec_.layout.block_columns;
    const std::int64_t tokens = kv_len(workload_, spec_.layout, request);
    const std::int64_t columns = (tokens + size - 1) / size;
    const std::int32_t begin = workload_.block_indptr[row];
    const std::int32_t end = workload_.block_indptr[row + 1];
    if (end - begin > columns || (end - begin) * size > kMaxLength) {
      return invalid(element("block_indptr", row + 1),
                     who(request) + "wanted at most " + text(std::min(columns, kMaxLength / size)) +
                         " blocks of " + text(size) + " keys in a row, as it has " + text(tokens) +
                         " keys, given " + text(end - begin),
                     "list each block once");
    }
    if (workload_.block_indices.empty()) return ok_status();
    for (std::int32_t i = begin; i < end; ++i) {
      const std::int32_t block = workload_.block_indices[i];
      if (block < 0 || block >= columns) {
        return invalid(element("block_indices", i),
                       who(request) + "wanted a block from 0 to " + text(columns - 1) + ", given " +
                           text(block),
                       "columns number the request's own keys in blocks of " + text(size));
      }
      if (static_cast<std::int64_t>(seen_in_row_.size()) < columns)
        seen_in_row_.resize(columns, -1);
      if (std::exchange(seen_in_row_[block], row) == row) {
        return invalid(
            element("block_indices", i),
            who(request) + "wanted each block once in a row, given " + text(block) + " again",
            "a repeated block would count twice");
      }
    }
    return ok_status();
  }

  const Spec& spec_;
  const Workload& workload_;
  std::pmr::vector<std::int64_t> seen_in_row_;  // of each column: the last row that lists it
};

Status check_unused(const Spec& spec, const Workload& workload) {
  const KvLayout kv = spec.layout.kv;
  const auto refuse = [kv](bool used, bool given, const char* name) {
    if (used || !given) return ok_status();
    return invalid(std::string("workload.") + name,
                   "not used by layout.kv \"" + std::string(json_name(kv)) + "\"", "leave it out");
  };
  const bool paged = kv == KvLayout::kPaged;
  const bool padded = kv == KvLayout::kPadded;
  const bool bsr = kv == KvLayout::kBsr;
  ATTNLOOM_CHECK(refuse(paged, !workload.last_page_len.empty(), "last_page_len"));
  ATTNLOOM_CHECK(refuse(paged, !workload.page_indices.empty(), "page_indices"));
  ATTNLOOM_CHECK(refuse(paged, workload.pool_pages != 0, "pool_pages"));
  ATTNLOOM_CHECK(refuse(paged, !workload.levels.empty(), "levels"));
  ATTNLOOM_CHECK(refuse(padded, !workload.kv_start.empty(), "kv_start"));
  ATTNLOOM_CHECK(refuse(padded, workload.kv_capacity != 0, "kv_capacity"));
  ATTNLOOM_CHECK(refuse(bsr, !workload.block_indptr.empty(), "block_indptr"));
  return refuse(bsr, !workload.block_indices.empty(), "block_indices");
}

}  // namespace

Status check_kv_arrays(const Spec& spec, const Workload& workload, Memory* memory) {
  ATTNLOOM_CHECK(check_unused(spec, workload));
  switch (spec.layout.kv) {
    case KvLayout::kRagged:
      return ok_status();
    case KvLayout::kPadded:
      return check_padded(workload);
    case KvLayout::kPaged:
      ATTNLOOM_CHECK(check_pages(spec, workload));
      return check_page_indices(workload);
    case KvLayout::kBsr:
      return BlockRowCheck(spec, workload, memory).run();
  }
  return ok_status();
}

}  // namespace attnloom
