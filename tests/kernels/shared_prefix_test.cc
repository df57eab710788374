// SPDX-License-Identifier: Apache-2.0
// Shared prefixes on the simulated device: found in page tables or given as levels, read once for
// all members, and merged to what the float64 reference says, whatever the order of CTAs.
#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>
#include <random>

#include "kernels/kernel_rig.h"

namespace attnloom::testing {
namespace {

// A tree of page rows. Its leaves are requests, in no order.
struct Tree {
  int page_size = 16;
  int group = 4;
  int kv_heads = 2;
  std::vector<int> fans;                  // children of a node at each level; the last are requests
  std::vector<int> tokens;                // of a node at each level but the requests'
  std::vector<int> suffix_tokens = {30};  // of request i, in turn
  std::vector<int> qo_len = {1};          // likewise
  std::string tile = R"("auto")";
  std::string dtype = "bf16";
  std::string kv_dtype = "bf16";
  Json variant = {{"name", "causal"}, {"mask", {{"causal", true}}}};
  Json params = Json::object();
  int dim = 64;
  unsigned seed = 1;
};

struct Rows {
  std::vector<std::vector<int>> pages;  // of each request
  std::vector<int> kv_len;
  int pool = 0;
};

Rows rows_of(const Tree& tree, std::mt19937& random) {
  std::vector<std::vector<int>> level = {{}};
  Rows rows;
  for (std::size_t l = 0; l < tree.fans.size(); ++l) {
    std::vector<std::vector<int>> next;
    for (const std::vector<int>& above : level) {
      for (int child = 0; child < tree.fans[l]; ++child) {
        next.push_back(above);
        const bool leaf = l + 1 == tree.fans.size();
        const int tokens =
            leaf ? tree.suffix_tokens[next.size() % tree.suffix_tokens.size()] : tree.tokens[l];
        if (leaf) rows.kv_len.push_back(static_cast<int>(above.size()) * tree.page_size + tokens);
        for (int t = 0; t < tokens; t += tree.page_size) next.back().push_back(rows.pool++);
      }
    }
    level = std::move(next);
  }
  std::vector<std::size_t> order(level.size());
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  std::vector<int> names(static_cast<std::size_t>(rows.pool));
  std::iota(names.begin(), names.end(), 0);
  std::shuffle(names.begin(), names.end(), random);
  Rows shuffled{.pool = rows.pool + 1};
  for (const std::size_t r : order) {
    shuffled.pages.push_back(level[r]);
    for (int& page : shuffled.pages.back()) page = names[static_cast<std::size_t>(page)];
    shuffled.kv_len.push_back(rows.kv_len[r]);
  }
  return shuffled;
}

Json case_of(const Tree& tree) {
  std::mt19937 random(tree.seed);
  const Rows rows = rows_of(tree, random);
  std::vector<int> qo_len, indptr = {0}, indices, last;
  for (std::size_t r = 0; r < rows.pages.size(); ++r) {
    qo_len.push_back(tree.qo_len[r % tree.qo_len.size()]);
    indices.insert(indices.end(), rows.pages[r].begin(), rows.pages[r].end());
    indptr.push_back(static_cast<int>(indices.size()));
    last.push_back(rows.kv_len[r] == 0 ? 0 : (rows.kv_len[r] - 1) % tree.page_size + 1);
  }
  const auto normal = [&](unsigned which) {
    return Json{{"random", "normal"}, {"seed", 3 * tree.seed + which}};
  };
  Json inputs = {{"q", normal(0)}, {"k", normal(1)}, {"v", normal(2)}};
  if (!tree.params.empty()) inputs["params"] = tree.params;
  return {{"case", 1},
          {"spec",
           {{"attnloom", 1},
            {"kernel", "attention"},
            {"dtype", {{"q", tree.dtype}, {"kv", tree.kv_dtype}, {"o", tree.dtype}}},
            {"head_dim", {{"qk", tree.dim}, {"vo", tree.dim}}},
            {"group_size", tree.group},
            {"layout", {{"kv", "paged"}, {"page_size", tree.page_size}}},
            {"tile", Json::parse(tree.tile)},
            {"variant", tree.variant}}},
          {"workload",
           {{"heads", {{"q", tree.group * tree.kv_heads}, {"kv", tree.kv_heads}}},
            {"qo_len", qo_len},
            {"kv_len", rows.kv_len},
            {"pages",
             {{"indptr", indptr},
              {"indices", indices},
              {"last_page_len", last},
              {"pool", rows.pool}}}}},
          {"inputs", inputs}};
}

// Runs it with prefixes shared in `tiles` tiles (-1: some); judged by the reference, without a
// finding. Twice: the counters must be back at 0.
CaseRun check(Engine& engine, const Json& json, int tiles = -1, int launches = 2) {
  const CaseFile file = parse_or_fail(json.dump());
  Result<CaseRun> run = run_case(engine, file, {.launches = launches});
  CHECK(judge_run(file, run) == "");
  REQUIRE(run.ok());
  INFO("prefix tiles " << run->figures.prefix_tiles);
  CHECK((tiles < 0 ? run->figures.prefix_tiles > 0 : run->figures.prefix_tiles == tiles));
  return std::move(run).value();
}

Tree two_levels() {
  return {.fans = {1, 6}, .tokens = {320}, .suffix_tokens = {30, 0, 200, 16}};
}
Tree three_levels() {
  return {.fans = {1, 2, 5}, .tokens = {256, 160}, .suffix_tokens = {1, 40, 0}};
}

TEST_CASE("prefixes of two and three levels, found in page tables", "[shared]") {
  const auto engine = make_test_engine();
  for (const int page_size : {1, 16}) {
    for (const int group : {4, 7}) {
      for (Tree tree : {two_levels(), three_levels()}) {
        INFO("page " << page_size << ", group " << group << ", levels " << tree.fans.size());
        tree.page_size = page_size;
        tree.group = group;
        // Of the three levels, with seven rows a request the outermost is worth no more than the
        // two readers that it leaves to the inner ones.
        check(*engine, case_of(tree), tree.fans.size() == 2 ? 1 : group == 4 ? 3 : 2);
      }
    }
  }
}

TEST_CASE("prefix and suffix in several chunks, one of the two, and neither", "[shared]") {
  const auto engine = make_test_engine();
  Tree tree = two_levels();
  tree.suffix_tokens = {900, 3, 450};
  tree.tokens = {1200};
  tree.fans = {1, 5};
  const CaseRun both = check(*engine, case_of(tree), 1);
  CHECK(both.figures.items > 2 * (5 + 5));
  tree.suffix_tokens = {10};
  check(*engine, case_of(tree), 1);
  tree.kv_heads = 140;  // more items than CTAs
  tree.tokens = {128};
  tree.dim = 16;
  const CaseRun whole = check(*engine, case_of(tree), 1);
  CHECK(whole.figures.items == 140 * 6);
}

TEST_CASE("members of several tokens, several tiles, kernels of one class and of three",
          "[shared]") {
  const auto engine = make_test_engine();
  Tree tree = two_levels();
  tree.qo_len = {1, 3, 2, 0};
  tree.suffix_tokens = {30, 40, 3};
  check(*engine, case_of(tree), 1);
  tree.fans = {1, 40};  // 40 requests of 7 rows: 18 in a tile of 128
  tree.qo_len = {1};
  tree.group = 7;
  tree.kv_heads = 1;
  check(*engine, case_of(tree), 3);
  tree.tile = R"({"q": 16, "kv": 64})";  // two requests in a tile
  tree.fans = {1, 4};
  check(*engine, case_of(tree), 2);
  tree.tile = R"({"classes": [16, 32, 64]})";
  tree.fans = {1, 12};
  check(*engine, case_of(tree), 2);
  // Where a request's own state takes 64 rows there is no room for twelve of them.
  tree.tile = R"({"q": 64, "kv": 64})";
  check(*engine, case_of(tree), 0);
  // One head a KV head: query tile 1 is left to those that share nothing.
  tree.tile = R"("auto")";
  tree.group = 1;
  check(*engine, case_of(tree), 1);
}

TEST_CASE("without a causal mask, a suffix may be empty and a key may follow its query",
          "[shared]") {
  const auto engine = make_test_engine();
  Tree tree = three_levels();
  tree.variant = {{"name", "plain"}};
  tree.tokens = {512, 160};
  tree.suffix_tokens = {0, 0, 5};
  tree.qo_len = {3, 1};
  check(*engine, case_of(tree), 3);
}

TEST_CASE("every variant that may share does", "[shared]") {
  const auto engine = make_test_engine();
  const Json cap = {{"name", "cap"}, {"type", "f32"}};
  const Json list = {{"name", "xs"}, {"type", "ptr<f32>"}};
  const Json xs = {{"xs", {{"dtype", "f32"}, {"shape", {8}}, {"random", "normal"}, {"seed", 9}}}};
  struct Case {
    Json variant;
    Json params;
  };
  const Case cases[] = {
      {Json::parse(R"({"compose": ["soft_cap"], "name": "soft_cap", "mask": {"causal": true}})"),
       {{"cap", 20.0}}},
      {{{"name", "sunk"}, {"sink", "xs"}, {"params", Json::array({list})}}, xs},
      {{{"name", "no_softmax"}, {"softmax", false}, {"mask", {{"causal", true}}}}, Json::object()},
      {{{"name", "by_key"},
        {"params", Json::array({list, cap})},
        {"logits_transform", "return logits + xs[q_head] * float(kv_pos % 5) * cap;"},
        {"logits_mask", "return kv_pos % 3 != kv_head;"},
        {"output_transform",
         "return o * xs[q_head] + float(q_pos % 7 + batch + kv_len % 3) + lse;"}},
       {{"xs", xs["xs"]}, {"cap", 0.1}}},
      {{{"name", "rows"},
        {"mask", {{"causal", true}}},
        {"query_transform", "x.scale(1.0f + float(a.pos % 5));"},
        {"key_transform", "x.scale(1.0f - 0.1f * float(a.pos % 3));"},
        {"value_transform", "x.scale(1.0f + 0.25f * float(a.pos % 4));"}},
       Json::object()}};
  for (const Case& c : cases) {
    INFO(c.variant["name"]);
    Tree tree = two_levels();
    tree.variant = c.variant;
    tree.params = c.params;
    tree.qo_len = {1, 2};
    check(*engine, case_of(tree), 1);
  }
}

TEST_CASE("8-bit caches and head dims that are no power of two share as well", "[shared]") {
  const auto engine = make_test_engine();
  Tree tree = two_levels();
  tree.kv_dtype = "e4m3";
  tree.variant = {{"name", "scaled"}, {"kv_scale", "head"}};
  Json json = case_of(tree);
  json["workload"]["k_scale"] = {0.5, 0.25};
  json["workload"]["v_scale"] = {2.0, 1.5};
  check(*engine, json, 1);
  tree = three_levels();
  tree.dtype = tree.kv_dtype = "f16";
  tree.dim = 80;
  check(*engine, case_of(tree), 3);
}

TEST_CASE("variants that tell requests apart are right, and share nothing", "[shared]") {
  const auto engine = make_test_engine();
  Tree tree = two_levels();
  tree.variant = {{"name", "window"}, {"mask", {{"causal", true}, {"window_left", 100}}}};
  check(*engine, case_of(tree), 0);
  tree.variant =
      Json::parse(R"({"name": "alibi", "compose": ["alibi"], "mask": {"causal": true}})");
  tree.params = {{"slopes", {{"dtype", "f32"}, {"shape", {8}}, {"data", 0.1}}}};
  check(*engine, case_of(tree), 0);
}

// The order of warps and CTAs decides who comes last, never what it writes.
TEST_CASE("any order of CTAs gives the same bits", "[shared]") {
  Tree tree = three_levels();
  tree.suffix_tokens = {300, 0, 40};
  tree.tokens = {400, 200};
  const CaseRun first = check(*make_test_engine(), case_of(tree), 3, 3);
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    const CaseRun other = check(*make_test_engine(seed), case_of(tree), 3, 1);
    CHECK(other.output.o == first.output.o);
    CHECK(other.output.lse == first.output.lse);
  }
}

TEST_CASE("levels are shared as given, with and without page rows beside them", "[shared]") {
  const auto engine = make_test_engine();
  Json json = case_of({.fans = {6}, .suffix_tokens = {0}});
  Json& workload = json["workload"];
  workload.erase("pages");
  workload["kv_len"] = {20, 18, 17, 40, 33, 16};
  workload["levels"] = Json::parse(R"([
    {"qo_indptr": [0, 6], "pages": {"indptr": [0, 1], "indices": [7], "last_page_len": [16]}},
    {"qo_indptr": [0, 3, 5, 6],
     "pages": {"indptr": [0, 0, 1, 1], "indices": [3], "last_page_len": [0, 16, 0]}},
    {"qo_indptr": [0, 1, 2, 3, 4, 5, 6],
     "pages": {"indptr": [0, 1, 2, 3, 4, 5, 5], "indices": [0, 1, 2, 4, 5],
               "last_page_len": [4, 2, 1, 8, 1, 0]}}])");
  check(*engine, json, 2);
}

// Head dim 128, bf16: 512 bytes a key. Keys, indices and states are all that is fetched.
TEST_CASE("keys of a shared prefix are fetched once, not once a member", "[shared]") {
  if (on_cuda()) return;
  const auto engine = make_test_engine();
  Tree tree = {.kv_heads = 2, .fans = {1, 12}, .tokens = {2048}, .suffix_tokens = {32}};
  tree.dim = 128;
  const CaseFile file = parse_or_fail(case_of(tree).dump());
  const auto fetched = [&](bool share_prefixes) {
    Result<CaseRun> run = run_case(*engine, file, {.limits = {.share_prefixes = share_prefixes}});
    CHECK(judge_run(file, run) == "");
    CHECK(run->figures.prefix_tiles == (share_prefixes ? 1 : 0));
    CHECK(run->report.counters.ldmatrix_conflicts == 0);
    CHECK(run->report.counters.copy_conflicts == 0);
    return 32.0 * static_cast<double>(run->report.counters.global_fetch_sectors);
  };
  const double prefix = 2 * 2048 * 512.0;
  const double suffixes = 12 * 2 * 32 * 512.0;
  CHECK(fetched(false) >= 12 * prefix + suffixes);
  const double shared = fetched(true);
  INFO("fetched " << shared / prefix << " prefixes");
  CHECK(shared >= prefix + suffixes);
  CHECK(shared <= 1.4 * prefix + suffixes);
}

// Nothing of their own, as with several samples of one prompt: whoever ends the prefix writes the
// outputs of all of them, a warp each.
TEST_CASE("requests that are nothing but their prefix", "[shared]") {
  Tree tree = two_levels();
  tree.fans = {1, 11};
  tree.tokens = {416};
  tree.suffix_tokens = {0};
  const CaseFile file = parse_or_fail(case_of(tree).dump());
  CHECK(judge_run(file, run_case(*make_test_engine(), file)) == "");
  if (on_cuda()) return;
  const auto engine = make_edited_engine(0, [&](Source& source) {
    replace_once(source, "loom/epilogue.cuh", "i += Crew::kThreads / 32",
                 "i += Crew::kThreads / 16");
  });
  CHECK(judge_run(file, run_case(*engine, file)) != "");
}

TEST_CASE("mutants of what sharing added are noticed", "[shared]") {
  if (on_cuda()) return;
  struct Mutant {
    const char* header;
    const char* from;
    const char* to;
  };
  constexpr Mutant kMutants[] = {
      {"loom/shared.cuh", "return shared_token(args, request, token).token;", "return token;"},
      {"loom/shared.cuh", "plan_of(args).kv_heads * run.rows;", "run.rows;"},
      {"loom/shared.cuh", "first = run.row + kv_head * run.rows;", "first = run.row;"},
      {"loom/shared.cuh", "*next++;", "*next;"},
      {"loom/epilogue.cuh", "members[i].merge + work.kv_head()", "members[i].merge"},
      {"loom/epilogue.cuh", "shared ? output.request.member_count : 1", "1"},
      {"loom/epilogue.cuh", "[members[i].request]", "[members[0].request]"},
      {"loom/row_pass.cuh", "shared_token(args, request, token).position", "token"}};
  Tree tree = two_levels();
  tree.tokens = {400};
  tree.tile = R"({"q": 16, "kv": 64})";
  tree.variant = {{"name", "rows"}, {"query_transform", "x.scale(1.0f + float(a.pos % 5));"}};
  const CaseFile file = parse_or_fail(case_of(tree).dump());
  for (const Mutant& mutant : kMutants) {
    INFO(mutant.header << ": " << mutant.from);
    const auto engine = make_edited_engine(
        3, [&](Source& source) { replace_once(source, mutant.header, mutant.from, mutant.to); });
    CHECK(judge_run(file, run_case(*engine, file)) != "");
  }
}

}  // namespace
}  // namespace attnloom::testing
