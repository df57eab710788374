// SPDX-License-Identifier: Apache-2.0
#include "plan/levels.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "plan/workload_layout.h"

namespace attnloom {
namespace {

// The first request whose query tokens do not all come before `token`.
int request_at(const Workload& workload, std::int32_t token) {
  const auto indptr = workload.qo_indptr;
  return static_cast<int>(std::lower_bound(indptr.begin(), indptr.end() - 1, token) -
                          indptr.begin());
}

struct Group {
  int first_request = 0;
  int request_end = 0;
  int pages = 0;
  bool is_shared() const { return pages > 0 && request_end - first_request > 1; }
};

Group group_of(const Workload& workload, const SharedLevel& level, std::size_t index) {
  return {request_at(workload, level.qo_indptr[index]),
          request_at(workload, level.qo_indptr[index + 1]),
          level.page_indptr[index + 1] - level.page_indptr[index]};
}

class LevelCheck {
 public:
  LevelCheck(const Spec& spec, const Workload& workload)
      : workload_(workload),
        shareable_(shareable_pages(spec, workload)),
        group_(static_cast<std::size_t>(workload.batch()), 0),
        pages_(static_cast<std::size_t>(workload.batch()), 0) {}

  Status run() {
    for (std::size_t l = 0; l < workload_.levels.size(); ++l) {
      name_ = "levels[" + text(static_cast<std::int64_t>(l)) + "]";
      ATTNLOOM_CHECK(check_arrays(workload_.levels[l]));
      std::vector<int> groups(group_.size(), 0);
      for (std::size_t g = 0; g + 1 < workload_.levels[l].qo_indptr.size(); ++g) {
        ATTNLOOM_CHECK(check_group(workload_.levels[l], g));
        const Group group = group_of(workload_, workload_.levels[l], g);
        std::fill(groups.begin() + group.first_request, groups.begin() + group.request_end,
                  static_cast<int>(g));
      }
      group_ = std::move(groups);
    }
    return ok_status();
  }

 private:
  Status check_arrays(const SharedLevel& level) const {
    if (level.qo_indptr.empty()) {
      return invalid("workload." + name_ + ".qo_indptr", "wanted groups + 1 entries, given 0",
                     "a level without groups is [0]");
    }
    ATTNLOOM_CHECK(check_length(name_ + ".page_indptr", level.page_indptr.size(),
                                static_cast<std::int64_t>(level.qo_indptr.size()),
                                "one entry for each of qo_indptr"));
    ATTNLOOM_CHECK(check_indptr(name_ + ".qo_indptr", level.qo_indptr));
    ATTNLOOM_CHECK(check_indptr(name_ + ".page_indptr", level.page_indptr));
    const std::int32_t tokens = workload_.qo_indptr.back();
    if (level.qo_indptr.back() == tokens) return ok_status();
    return invalid(
        element(name_ + ".qo_indptr", static_cast<std::int64_t>(level.qo_indptr.size()) - 1),
        "wanted the " + text(tokens) + " query tokens of the batch, given " +
            text(level.qo_indptr.back()),
        "requests that share nothing are groups of their own, without pages");
  }

  Status check_group(const SharedLevel& level, std::size_t index) {
    const std::int32_t token = level.qo_indptr[index];
    const Group group = group_of(workload_, level, index);
    if (workload_.qo_indptr[group.first_request] != token) {
      return invalid(element(name_ + ".qo_indptr", static_cast<std::int64_t>(index)),
                     "request " + text(group.first_request - 1) +
                         ": wanted a border between requests, given token " + text(token) +
                         " of it",
                     "a group is made of whole requests");
    }
    for (int r = group.first_request; r < group.request_end; ++r)
      ATTNLOOM_CHECK(check_member(group, index, r));
    return ok_status();
  }

  Status check_member(const Group& group, std::size_t index, int request) {
    const std::string path = element(name_ + ".qo_indptr", static_cast<std::int64_t>(index));
    const std::string who = "request " + text(request) + ": ";
    if (group_[request] != group_[group.first_request]) {
      return invalid(path,
                     who + "wanted a group within one of the level before, given one of requests " +
                         text(group.first_request) + " to " + text(group.request_end - 1),
                     "levels are nested, the prefix of the most requests first");
    }
    const std::int64_t begin = pages_[request];
    const std::int64_t end = begin + group.pages;
    const std::int64_t row = workload_.kv_indptr[request + 1] - workload_.kv_indptr[request];
    const bool has_queries = workload_.qo_indptr[request + 1] > workload_.qo_indptr[request];
    const std::int64_t most = group.is_shared() && has_queries ? shareable_[request]
                              : has_queries                    ? row
                                                               : end;
    if (end > most) {
      return invalid(
          element(name_ + ".page_indptr", static_cast<std::int64_t>(index) + 1),
          who + "wanted at most " + text(most) + " pages over all levels, given " + text(end),
          "shared pages are whole ones, of keys that all queries of a member see");
    }
    pages_[request] = end;
    return has_queries ? check_pages(group, index, request, begin, end) : ok_status();
  }

  Status check_pages(const Group& group, std::size_t index, int request, std::int64_t begin,
                     std::int64_t end) const {
    if (workload_.page_indices.empty() || !group.is_shared()) return ok_status();
    const auto first = workload_.page_indices.begin() + workload_.kv_indptr[first_row(group)];
    const auto own = workload_.page_indices.begin() + workload_.kv_indptr[request];
    const auto differs = std::mismatch(own + begin, own + end, first + begin).first;
    if (differs == own + end) return ok_status();
    return invalid(element("page_indices", differs - workload_.page_indices.begin()),
                   "request " + text(request) + ": wanted page " + text(first[differs - own]) +
                       " of request " + text(first_row(group)) + ", as they share it in group " +
                       text(static_cast<std::int64_t>(index)) + " of " + name_ + ", given " +
                       text(*differs),
                   "members of a group list the same pages");
  }

  // The first member with queries; the others need no keys.
  int first_row(const Group& group) const {
    int request = group.first_request;
    while (workload_.qo_indptr[request + 1] == workload_.qo_indptr[request]) ++request;
    return request;
  }

  const Workload& workload_;
  const std::vector<int> shareable_;
  std::string name_;
  std::vector<int> group_;           // of each request in the level before
  std::vector<std::int64_t> pages_;  // of each request in the levels so far
};

}  // namespace

Status check_levels(const Spec& spec, const Workload& workload) {
  if (workload.levels.empty()) return ok_status();
  return LevelCheck(spec, workload).run();
}

PrefixForest forest_of_levels(const Workload& workload) {
  PrefixForest forest;
  forest.order.resize(static_cast<std::size_t>(workload.batch()));
  std::iota(forest.order.begin(), forest.order.end(), 0);
  std::vector<int> node(forest.order.size(), -1);  // the innermost of each request
  std::vector<int> pages(forest.order.size(), 0);  // of each request, shared or not
  for (const SharedLevel& level : workload.levels) {
    for (std::size_t g = 0; g + 1 < level.qo_indptr.size(); ++g) {
      const Group group = group_of(workload, level, g);
      const int begin = group.first_request < workload.batch() ? pages[group.first_request] : 0;
      if (group.is_shared()) {
        forest.nodes.push_back({.parent = node[group.first_request],
                                .begin = begin,
                                .end = begin + group.pages,
                                .first_member = group.first_request,
                                .member_end = group.request_end});
      }
      for (int r = group.first_request; r < group.request_end; ++r) {
        pages[r] += group.pages;
        if (group.is_shared()) node[r] = static_cast<int>(forest.nodes.size()) - 1;
      }
    }
  }
  return forest;
}

}  // namespace attnloom
