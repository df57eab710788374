// SPDX-License-Identifier: Apache-2.0
// From trees: shared prefixes, and drafts on top of a context.
#include <algorithm>
#include <limits>

#include "plan/block_sparse/checks.h"

namespace attnloom {
namespace {

// The nodes from a root down to `node`. REQUIRES: check_parents passed.
std::vector<std::int32_t> path_to(IndexArray parent, std::int32_t node) {
  std::vector<std::int32_t> path;
  for (; node >= 0; node = parent[node]) path.push_back(node);
  std::reverse(path.begin(), path.end());
  return path;
}

// The first node whose ancestors never end; -1: there is none. Each node is walked once.
// REQUIRES: parents in range.
std::int64_t endless(IndexArray parent) {
  std::vector<std::int64_t> walked_from(parent.size(), -1);
  for (std::int64_t start = 0; start < std::ssize(parent); ++start) {
    for (std::int32_t node = static_cast<std::int32_t>(start); node >= 0; node = parent[node]) {
      if (walked_from[node] == start) return start;
      if (walked_from[node] >= 0) break;
      walked_from[node] = start;
    }
  }
  return -1;
}

Status check_parents(const std::string& group, const std::string& who, IndexArray parent,
                     std::int64_t first) {
  for (std::int64_t n = 0; n < std::ssize(parent); ++n) {
    if (parent[n] >= -1 && parent[n] < std::ssize(parent) && parent[n] != n) continue;
    return invalid(entry(group, "parent", first + n),
                   who + "wanted -1 or another of " + text(std::ssize(parent)) + " nodes, given " +
                       text(parent[n]),
                   "-1 is a root");
  }
  const std::int64_t node = endless(parent);
  if (node < 0) return ok_status();
  return invalid(entry(group, "parent", first + node),
                 who + "the ancestors of node " + text(node) + " never end at a root",
                 "a tree has no cycle");
}

Status check_tree(const PrefixTree& tree) {
  const std::string group = "tree";
  if (tree.qo_indptr.empty())
    return invalid("tree.qo_indptr", "wanted batch + 1 entries, given 0", "an empty batch is [0]");
  ATTNLOOM_CHECK(check_indptr_of(group, "qo_indptr", tree.qo_indptr, std::ssize(tree.qo_indptr)));
  ATTNLOOM_CHECK(renamed(check_length("node", tree.node.size(), std::ssize(tree.qo_indptr) - 1,
                                      "one node for each request"),
                         group));
  ATTNLOOM_CHECK(check_parents(group, "", tree.parent, 0));
  for (const auto& [name, array] :
       {std::pair{"key_begin", tree.key_begin}, std::pair{"key_count", tree.key_count}})
    ATTNLOOM_CHECK(renamed(
        check_length(name, array.size(), std::ssize(tree.parent), "one for each node"), group));
  if (tree.keys < 0 || tree.keys > kMaxLength)
    return invalid("tree.keys", "wanted 0 to " + text(kMaxLength) + ", given " + text(tree.keys),
                   "it counts the key rows of the store");
  for (std::int64_t n = 0; n < std::ssize(tree.parent); ++n) {
    const std::int64_t end = std::int64_t{tree.key_begin[n]} + tree.key_count[n];
    if (tree.key_begin[n] >= 0 && tree.key_count[n] >= 0 && end <= tree.keys) continue;
    return invalid(entry(group, "key_begin", n),
                   "node " + text(n) + ": wanted keys within 0 to " + text(tree.keys) + ", given " +
                       text(tree.key_count[n]) + " from " + text(tree.key_begin[n]),
                   "a node's tokens lie in the store one behind the other");
  }
  return ok_status();
}

// The keys of a request, root first. Two nodes of one path that share a key would count it twice.
Result<TokenKeys> path_keys(const PrefixTree& tree, std::size_t request) {
  const std::string who = "request " + text(static_cast<std::int64_t>(request)) + ": ";
  const std::int32_t node = tree.node[request];
  if (node < 0 || node >= std::ssize(tree.parent))
    return invalid(entry("tree", "node", static_cast<std::int64_t>(request)),
                   who + "wanted a node from 0 to " + text(std::ssize(tree.parent) - 1) +
                       ", given " + text(node),
                   "a request without shared keys has a root of its own");
  TokenKeys keys;
  for (const std::int32_t n : path_to(tree.parent, node))
    keys.push_back({tree.key_begin[n], tree.key_begin[n] + tree.key_count[n]});
  TokenKeys sorted = keys;
  std::erase_if(sorted, [](const KeyRange& range) { return range.begin == range.end; });
  std::sort(sorted.begin(), sorted.end(),
            [](const KeyRange& a, const KeyRange& b) { return a.begin < b.begin; });
  for (std::size_t i = 1; i < sorted.size(); ++i) {
    if (sorted[i - 1].end <= sorted[i].begin) continue;
    return invalid(
        entry("tree", "node", static_cast<std::int64_t>(request)),
        who + "two nodes on the way to node " + text(node) + " hold key " + text(sorted[i].begin),
        "a key counts once");
  }
  return keys;
}

Status check_drafts(const DraftTrees& drafts) {
  if (drafts.draft_indptr.empty())
    return invalid("drafts.draft_indptr", "wanted batch + 1 entries, given 0",
                   "an empty batch is [0]");
  ATTNLOOM_CHECK(check_indptr_of("drafts", "draft_indptr", drafts.draft_indptr,
                                 std::ssize(drafts.draft_indptr)));
  ATTNLOOM_CHECK(renamed(
      check_length("context_len", drafts.context_len.size(), std::ssize(drafts.draft_indptr) - 1,
                   "one for each request of draft_indptr"),
      "drafts"));
  return renamed(check_length("parent", drafts.parent.size(), drafts.draft_indptr.back(),
                              "draft_indptr ends at the number of draft tokens"),
                 "drafts");
}

}  // namespace

Result<BlockSparse> from_prefix_tree(const PrefixTree& tree, BlockSize block) {
  ATTNLOOM_CHECK(check_block(block, "block"));
  ATTNLOOM_CHECK(check_tree(tree));
  std::vector<TokenKeys> tokens;
  for (std::size_t r = 0; r < tree.node.size(); ++r) {
    ATTNLOOM_TRY(const TokenKeys path, path_keys(tree, r));
    std::int64_t kv_len = 0;
    for (const KeyRange& range : path) kv_len += range.end - range.begin;
    add_tokens(path, kv_len, tree.qo_indptr[r + 1] - tree.qo_indptr[r], tree.causal, tokens);
  }
  return whole_batch(tokens, tree.keys, block);
}

Result<BlockSparse> from_draft_trees(const DraftTrees& drafts, BlockSize block) {
  ATTNLOOM_CHECK(check_block(block, "block"));
  ATTNLOOM_CHECK(check_drafts(drafts));
  BlockSparse out;
  out.block = block;
  for (std::size_t r = 0; r < drafts.context_len.size(); ++r) {
    const std::string who = "request " + text(static_cast<std::int64_t>(r)) + ": ";
    const std::int32_t first = drafts.draft_indptr[r];
    const IndexArray parent =
        drafts.parent.subspan(first, static_cast<std::size_t>(drafts.draft_indptr[r + 1] - first));
    const std::int64_t context = drafts.context_len[r];
    const std::int64_t keys = context + std::ssize(parent);
    if (context < 0 || keys > kMaxLength)
      return invalid(entry("drafts", "context_len", static_cast<std::int64_t>(r)),
                     who + "wanted 0 or more, with the drafts at most " + text(kMaxLength) +
                         ", given " + text(context),
                     "it counts the keys before the first draft");
    ATTNLOOM_CHECK(check_parents("drafts", who, parent, first));
    std::vector<TokenKeys> tokens(parent.size());
    for (std::int32_t i = 0; i < std::ssize(parent); ++i) {
      tokens[i].push_back({0, static_cast<std::int32_t>(context)});
      for (const std::int32_t ancestor : path_to(parent, i)) {
        const auto key = static_cast<std::int32_t>(context + ancestor);
        tokens[i].push_back({key, key + 1});
      }
    }
    ATTNLOOM_CHECK(append_request(tokens, keys, &out));
  }
  return out;
}

}  // namespace attnloom
