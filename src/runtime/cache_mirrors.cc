// SPDX-License-Identifier: Apache-2.0
#include "runtime/cache_mirrors.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace attnloom {
namespace {

using Indices = std::span<const std::int32_t>;

std::string entry(const char* name, std::size_t i) {
  return std::string(name) + "[" + std::to_string(i) + "]";
}

Status mirror_error(std::string path, std::string cause, std::string remedy = {}) {
  return make_error(Code::kWorkloadInvalid, std::move(path), std::move(cause), std::move(remedy));
}

Status check_length(const char* name, Indices given, std::int64_t wanted) {
  if (given.empty() || static_cast<std::int64_t>(given.size()) == wanted) return ok_status();
  return mirror_error(name, "must have the " + std::to_string(wanted) +
                                " entries of the device's array, given " +
                                std::to_string(given.size()));
}

Status check_below(std::string path, std::int64_t value, std::int64_t least, std::int64_t end,
                   const char* what) {
  if (value >= least && value < end) return ok_status();
  return mirror_error(std::move(path), "must be at least " + std::to_string(least) +
                                           " and below the " + std::to_string(end) + " " + what +
                                           ", given " + std::to_string(value));
}

Status check_indptr(Indices indptr, std::int64_t page_index_count) {
  for (std::size_t i = 0; i < indptr.size(); ++i) {
    const std::int64_t least = i == 0 ? 0 : indptr[i - 1];
    ATTNLOOM_CHECK(check_below(entry("host_page_indptr", i), indptr[i], least, page_index_count + 1,
                               "page indices and one"));
  }
  return ok_status();
}

struct Place {
  std::int32_t page;
  std::int32_t slot;
  std::size_t token;
};

// Two rows of one place would leave there whichever is written last.
Status check_places(std::vector<Place> places) {
  const auto same = [](const Place& a, const Place& b) {
    return a.page == b.page && a.slot == b.slot;
  };
  std::sort(places.begin(), places.end(), [](const Place& a, const Place& b) {
    return std::pair(a.page, a.slot) != std::pair(b.page, b.slot)
               ? std::pair(a.page, a.slot) < std::pair(b.page, b.slot)
               : a.token < b.token;
  });
  const auto twice = std::adjacent_find(places.begin(), places.end(), same);
  if (twice == places.end()) return ok_status();
  return mirror_error(entry("host_positions", (twice + 1)->token),
                      "names slot " + std::to_string(twice->slot) + " of page " +
                          std::to_string(twice->page) + ", as row " + std::to_string(twice->token) +
                          " does",
                      "give every row a place of its own");
}

// REQUIRES: each array was checked by itself.
Status check_rows(const AppendMirrors& mirrors, const AppendBounds& bounds) {
  if (mirrors.batch_indices.empty() || mirrors.positions.empty() || mirrors.page_indptr.empty())
    return ok_status();
  std::vector<Place> places;
  for (std::size_t i = 0; i < mirrors.positions.size(); ++i) {
    const std::int32_t request = mirrors.batch_indices[i];
    if (request < 0) continue;
    const auto row = static_cast<std::size_t>(request);
    const std::int32_t first = mirrors.page_indptr[row];
    const std::int64_t tokens =
        (std::int64_t{mirrors.page_indptr[row + 1]} - first) * bounds.page_size;
    ATTNLOOM_CHECK(check_below(entry("host_positions", i), mirrors.positions[i], 0, tokens,
                               "tokens that the pages of its request hold"));
    if (mirrors.page_indices.empty()) continue;
    const auto at = static_cast<std::size_t>(first + mirrors.positions[i] / bounds.page_size);
    places.push_back({mirrors.page_indices[at], mirrors.positions[i] % bounds.page_size, i});
  }
  return check_places(std::move(places));
}

}  // namespace

Status check_append_mirrors(const AppendMirrors& mirrors, const AppendBounds& bounds) {
  ATTNLOOM_CHECK(check_length("host_batch_indices", mirrors.batch_indices, bounds.tokens));
  ATTNLOOM_CHECK(check_length("host_positions", mirrors.positions, bounds.tokens));
  ATTNLOOM_CHECK(check_length("host_page_indptr", mirrors.page_indptr, bounds.batch + 1));
  ATTNLOOM_CHECK(check_length("host_page_indices", mirrors.page_indices, bounds.page_index_count));
  for (std::size_t i = 0; i < mirrors.batch_indices.size(); ++i) {
    const std::int64_t request = std::max(mirrors.batch_indices[i], 0);
    if (mirrors.batch_indices[i] < 0) continue;
    ATTNLOOM_CHECK(check_below(entry("host_batch_indices", i), request, 0, bounds.batch,
                               "requests of page_indptr"));
  }
  ATTNLOOM_CHECK(check_indptr(mirrors.page_indptr, bounds.page_index_count));
  for (std::size_t i = 0; i < mirrors.page_indices.size(); ++i) {
    ATTNLOOM_CHECK(check_below(entry("host_page_indices", i), mirrors.page_indices[i], 0,
                               bounds.pool_pages, "pages of the cache"));
  }
  return check_rows(mirrors, bounds);
}

Status check_page_pairs(Indices pairs, std::int64_t count, std::int64_t pool_pages) {
  if (pairs.empty()) return ok_status();
  ATTNLOOM_CHECK(check_length("host_pairs", pairs, 2 * count));
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    ATTNLOOM_CHECK(
        check_below(entry("host_pairs", i), pairs[i], 0, pool_pages, "pages of the cache"));
  }
  std::vector<std::pair<std::int32_t, std::size_t>> read, written;  // page, where in `pairs`
  for (std::size_t i = 0; i < pairs.size(); i += 2) {
    if (pairs[i] == pairs[i + 1]) continue;  // copies nothing
    read.emplace_back(pairs[i], i);
    written.emplace_back(pairs[i + 1], i + 1);
  }
  std::sort(read.begin(), read.end());
  std::sort(written.begin(), written.end());
  for (std::size_t i = 0; i < written.size(); ++i) {
    const std::int32_t page = written[i].first;
    const std::string path = entry("host_pairs", written[i].second);
    if (i > 0 && written[i - 1].first == page)
      return mirror_error(path, "page " + std::to_string(page) + " is written twice",
                          "give each page one source");
    const auto source = std::lower_bound(read.begin(), read.end(), std::pair(page, std::size_t{0}));
    if (source != read.end() && source->first == page) {
      return mirror_error(path,
                          "page " + std::to_string(page) + " is read by pair " +
                              std::to_string(source->second / 2) + " of the same call",
                          "copy in two calls: pairs of one call run in any order");
    }
  }
  return ok_status();
}

}  // namespace attnloom
