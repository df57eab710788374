// SPDX-License-Identifier: Apache-2.0
#include "plan/levels.h"

#include <algorithm>
#include <memory_resource>
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
  LevelCheck(const Spec& spec, const Workload& workload, Memory* memory)
      : workload_(workload),
        shareable_(shareable_pages(spec, workload, memory)),
        qo_indptr_(memory),
        page_indptr_(memory),
        group_(static_cast<std::size_t>(workload.batch()), 0, memory),
        pages_(static_cast<std::size_t>(workload.batch()), 0, memory) {}

  Status run() {
    std::pmr::vector<int> groups(group_.size(), 0, group_.get_allocator());
    for (std::size_t l = 0; l < workload_.levels.size(); ++l) {
      set_names(l);
      ATTNLOOM_CHECK(check_arrays(workload_.levels[l]));
      std::fill(groups.begin(), groups.end(), 0);
      for (std::size_t g = 0; g + 1 < workload_.levels[l].qo_indptr.size(); ++g) {
        ATTNLOOM_CHECK(check_group(workload_.levels[l], g));
        const Group group = group_of(workload_, workload_.levels[l], g);
        std::fill(groups.begin() + group.first_request, groups.begin() + group.request_end,
                  static_cast<int>(g));
      }
      group_.swap(groups);
    }
    return ok_status();
  }

 private:
  // "levels[1].qo_indptr" is too long for a std::string without memory of its own.
  void set_names(std::size_t level) {
    const std::string number = text(static_cast<std::int64_t>(level));
    for (std::pmr::string* name : {&qo_indptr_, &page_indptr_}) {
      name->assign("levels[").append(number).append("].");
      name->append(name == &qo_indptr_ ? "qo_indptr" : "page_indptr");
    }
  }

  Status check_arrays(const SharedLevel& level) const {
    if (level.qo_indptr.empty()) {
      return invalid("workload." + std::string(qo_indptr_), "wanted groups + 1 entries, given 0",
                     "a level without groups is [0]");
    }
    ATTNLOOM_CHECK(check_length(page_indptr_, level.page_indptr.size(),
                                static_cast<std::int64_t>(level.qo_indptr.size()),
                                "one entry for each of qo_indptr"));
    ATTNLOOM_CHECK(check_indptr(qo_indptr_, level.qo_indptr));
    ATTNLOOM_CHECK(check_indptr(page_indptr_, level.page_indptr));
    const std::int32_t tokens = workload_.qo_indptr.back();
    if (level.qo_indptr.back() == tokens) return ok_status();
    return invalid(element(qo_indptr_, static_cast<std::int64_t>(level.qo_indptr.size()) - 1),
                   "wanted the " + text(tokens) + " query tokens of the batch, given " +
                       text(level.qo_indptr.back()),
                   "requests that share nothing are groups of their own, without pages");
  }

  Status check_group(const SharedLevel& level, std::size_t index) {
    const std::int32_t token = level.qo_indptr[index];
    const Group group = group_of(workload_, level, index);
    if (workload_.qo_indptr[group.first_request] != token) {
      return invalid(element(qo_indptr_, static_cast<std::int64_t>(index)),
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
    if (group_[request] != group_[group.first_request]) {
      return invalid(element(qo_indptr_, static_cast<std::int64_t>(index)),
                     "request " + text(request) +
                         ": wanted a group within one of the level before, given one of requests " +
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
      return invalid(element(page_indptr_, static_cast<std::int64_t>(index) + 1),
                     "request " + text(request) + ": wanted at most " + text(most) +
                         " pages over all levels, given " + text(end),
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
                       text(static_cast<std::int64_t>(index)) + " of " +
                       std::string(qo_indptr_, 0, qo_indptr_.find('.')) + ", given " +
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
  const std::pmr::vector<int> shareable_;
  std::pmr::string qo_indptr_;  // the arrays of the level, as errors name them
  std::pmr::string page_indptr_;
  std::pmr::vector<int> group_;           // of each request in the level before
  std::pmr::vector<std::int64_t> pages_;  // of each request in the levels so far
};

}  // namespace

Status check_levels(const Spec& spec, const Workload& workload, Memory* memory) {
  if (workload.levels.empty()) return ok_status();
  return LevelCheck(spec, workload, memory).run();
}

PrefixForest forest_of_levels(const Workload& workload, Memory* memory) {
  PrefixForest forest = no_prefixes(memory);
  forest.order.resize(static_cast<std::size_t>(workload.batch()));
  std::iota(forest.order.begin(), forest.order.end(), 0);
  std::pmr::vector<int> node(forest.order.size(), -1, memory);  // the innermost of each request
  std::pmr::vector<int> pages(forest.order.size(), 0, memory);  // of each request, shared or not
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
