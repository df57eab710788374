// SPDX-License-Identifier: Apache-2.0
// Shared prefixes that the caller names, alm_workload.levels: planned and run through the C
// functions on the simulated device, beside the float64 reference.
#include <nlohmann/json.hpp>

#include "abi_fixture.h"
#include "block_sparse_rig.h"

using attnloom::cxx::index_array;
using namespace sparse_rig;

namespace {

constexpr int kPageSize = 16, kPool = 24, kKvHeads = 2, kGroup = 2, kQHeads = kKvHeads * kGroup;

// Five requests: 0 to 3 share pages 9 and 4, of these 0 and 1 page 20 behind them; request 2 has
// three query tokens, request 4 shares nothing. Each has a last page of its own.
struct Cascade {
  Ints qo{0, 1, 2, 5, 6, 7};
  Ints pages{9, 4, 20, 7, /**/ 9, 4, 20, 1, 13, /**/ 9, 4, 11, /**/ 9, 4, 0, /**/ 2, 23};
  Ints kv{0, 4, 9, 12, 15, 17};
  Ints last{5, 16, 9, 1, 12};
  Ints outer_qo{0, 6, 7}, outer_pages{0, 2, 2};
  Ints inner_qo{0, 2, 5, 6, 7}, inner_pages{0, 1, 1, 1, 1};

  // Into `levels`, which the workload then refers to. Without a mirror: nothing else could tell the
  // planner what is shared.
  alm_workload workload(std::vector<alm_level>& levels) const {
    levels = {{index_array(outer_qo), index_array(outer_pages)},
              {index_array(inner_qo), index_array(inner_pages)}};
    alm_workload made = zeroed<alm_workload>();
    made.qo_indptr = index_array(qo);
    made.kv_indptr = index_array(kv);
    made.last_page_len = index_array(last);
    made.levels = levels.data();
    made.level_count = levels.size();
    return made;
  }

  attnloom::reference::Output judge(const Numbers& q, const Numbers& k, const Numbers& v) const {
    Meaning meaning{.group = kGroup, .kv_heads = kKvHeads, .causal = true};
    for (std::size_t r = 0; r + 1 < qo.size(); ++r) {
      meaning.requests.push_back({.qo_len = qo[r + 1] - qo[r]});
      for (int i = kv[r]; i < kv[r + 1]; ++i) {
        const std::int64_t first = std::int64_t{pages[i]} * kPageSize * kKvHeads;
        const int tokens = i + 1 == kv[r + 1] ? last[r] : kPageSize;
        for (int row = 0; row < tokens * kKvHeads; ++row)
          meaning.requests.back().keys.push_back(first + row);
      }
    }
    return sparse_rig::judge(meaning, q, k, v);
  }
};

const std::string kSpec =
    R"({"attnloom": 1, "kernel": "attention", "target": "sm_90a", "dtype": {"q": "f16", "kv": "f16", "o": "f16"},
"head_dim": {"qk": 64, "vo": 64}, "tile": {"q": 16, "kv": 64}, "group_size": 2,
"layout": {"kv": "paged", "page_size": 16}, "variant": {"name": "plain", "mask": {"causal": true}}})";

// A plan through the C functions.
class Cascades : public AbiFixture {
 public:
  explicit Cascades(alm_device device) : AbiFixture(device) {
    const Told opened = open(kSpec);
    INFO(opened.path << " " << opened.cause);
    REQUIRE(opened.code == ALM_OK);
    limits = zeroed<alm_plan_limits>();
    limits.max_batch = 5;
    limits.max_qo_tokens = 7;
    limits.q_heads = kQHeads;
    limits.kv_heads = kKvHeads;
    sizes = zeroed<alm_plan_sizes>();
    REQUIRE(alm_plan_create(kernel, &limits, &plan, &sizes, nullptr) == ALM_OK);
  }
  Told update(const alm_workload& workload) {
    return tell(
        [&](alm_error** error) { return alm_plan_update(plan, &workload, nullptr, error); });
  }
  nlohmann::json figures() {
    alm_text* text = nullptr;
    REQUIRE(alm_plan_describe(plan, &text, nullptr) == ALM_OK);
    const nlohmann::json described = nlohmann::json::parse(text->data);
    alm_text_free(text);
    return described["figures"];
  }
};

TEST_CASE("levels: planned and run through the C functions, beside float64") {
  const Cascade cascade;
  const Numbers q(7 * kQHeads, 1), k(kPool * kPageSize * kKvHeads, 2), v(k.values.size() / kDim, 3);
  const attnloom::reference::Output wanted = cascade.judge(q, k, v);
  Cascades one(ALM_DEVICE_SIMULATOR);
  const auto upload = [&](const auto& values, const char* label) {
    Memory memory(one.context, values.size() * sizeof(values[0]), label);
    memory.copy_in(values.data(), memory.bytes());
    return memory;
  };
  {
    const Memory workspace(one.context, one.sizes.workspace_bytes, "workspace");
    std::vector<std::max_align_t> staging(one.sizes.staging_bytes / sizeof(std::max_align_t) + 1);
    REQUIRE(alm_plan_bind(one.plan, workspace.address(), workspace.bytes(), staging.data(),
                          one.sizes.staging_bytes, nullptr) == ALM_OK);
    const Memory q_memory = upload(q.bits, "q"), k_memory = upload(k.bits, "k");
    const Memory v_memory = upload(v.bits, "v"), pages = upload(cascade.pages, "page indices");
    const Memory o_memory(one.context, q.bits.size() * 2, "o");
    const Memory lse_memory(one.context, wanted.lse.size() * 4, "lse");
    alm_attention tensors = zeroed<alm_attention>();
    tensors.q = dense_tensor(q_memory.address(), ALM_F16, {7, kQHeads, kDim});
    tensors.k = dense_tensor(k_memory.address(), ALM_F16, {kPool, kPageSize, kKvHeads, kDim});
    tensors.v = dense_tensor(v_memory.address(), ALM_F16, {kPool, kPageSize, kKvHeads, kDim});
    tensors.o = dense_tensor(o_memory.address(), ALM_F16, {7, kQHeads, kDim});
    tensors.lse = dense_tensor(lse_memory.address(), ALM_F32, {7, kQHeads});
    tensors.page_indices = dense_tensor(pages.address(), ALM_I32, {std::ssize(cascade.pages)});
    std::vector<alm_level> levels;
    alm_workload workload = cascade.workload(levels);
    // Both levels; the outer one; none, as the table of each request is whole in any case.
    for (std::size_t given = levels.size() + 1; given-- > 0;) {
      CAPTURE(given);
      workload.level_count = given;
      const Told told = one.update(workload);
      INFO(told.path << " " << told.cause);
      REQUIRE(told.code == ALM_OK);
      CHECK(one.figures()["prefix_tiles"] == given);  // all members of a group fit a tile
      REQUIRE(alm_run(one.plan, &tensors, nullptr, nullptr) == ALM_OK);
      REQUIRE(alm_synchronize(one.context, nullptr, nullptr) == ALM_OK);
      std::vector<std::uint16_t> o(q.bits.size());
      o_memory.copy_out(o.data(), o_memory.bytes());
      std::vector<float> lse(wanted.lse.size());
      lse_memory.copy_out(lse.data(), lse_memory.bytes());
      compare(o, lse, wanted);
    }
  }
}

TEST_CASE("levels that are none are refused with their number and the request's") {
  Cascade cascade;
  std::vector<alm_level> levels;
  std::string path, cause;
  SECTION("a group that crosses a border of the level before") {
    cascade.inner_qo = {0, 2, 7};
    cascade.inner_pages = {0, 1, 1};
    path = "workload.levels[1].qo_indptr[1]";
    cause =
        "request 4: wanted a group within one of the level before, given one of requests 2 to 4";
  }
  SECTION("a group that cuts a request") {
    cascade.outer_qo = {0, 4, 7};
    path = "workload.levels[0].qo_indptr[1]";
    cause = "request 2: wanted a border between requests, given token 4 of it";
  }
  SECTION("more pages than a member's queries all see") {
    cascade.outer_pages = {0, 3, 3};
    path = "workload.levels[0].page_indptr[1]";
    cause = "request 2: wanted at most 2 pages over all levels, given 3";
  }
  alm_workload workload = cascade.workload(levels);
  SECTION("an array of another dtype") {
    levels[1].page_indptr.dtype = ALM_U8;
    path = "workload.levels[1].page_indptr";
    cause = "dtype must be i32, given u8";
  }
  SECTION("a strided array") {
    levels[1].qo_indptr.stride = 2;
    path = "workload.levels[1].qo_indptr";
    cause = "stride must be 1, given 2";
  }
  SECTION("a count without levels") {
    workload.levels = nullptr;
    path = "workload.levels";
    cause = "is NULL and level_count is 2";
  }
  Cascades one(ALM_DEVICE_NONE);
  const Told told = one.update(workload);
  CHECK(told.code == ALM_WORKLOAD_INVALID);
  CHECK(told.path == path);
  CHECK(told.cause == cause);
}

}  // namespace
