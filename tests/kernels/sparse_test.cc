// SPDX-License-Identifier: Apache-2.0
// Block-sparse rows, padded slots and custom masks on the device: what is read at all, offsets past
// 32 bits are in offsets_test.cc, values in the cases and the sweep.
#include <catch2/catch.hpp>
#include <string>

#include "base/json.h"
#include "kernels/kernel_rig.h"

namespace attnloom::testing {
namespace {

// One head, f16, head dim 64, one tile class.
Json base_case(int qo_len, int kv_len, const Json& layout, const Json& mask) {
  return {
      {"case", 1},
      {"spec",
       {{"attnloom", 1},
        {"kernel", "attention"},
        {"dtype", {{"q", "f16"}, {"kv", "f16"}, {"o", "f16"}}},
        {"head_dim", {{"qk", 64}, {"vo", 64}}},
        {"group_size", 1},
        {"layout", layout},
        {"tile", {{"q", 16}, {"kv", 64}}},
        {"variant", {{"name", "plain"}, {"mask", mask}}}}},
      {"workload", {{"heads", {{"q", 1}, {"kv", 1}}}, {"qo_len", {qo_len}}, {"kv_len", {kv_len}}}},
      {"inputs",
       {{"q", {{"random", "normal"}, {"seed", 1}}},
        {"k", {{"random", "normal"}, {"seed", 2}}},
        {"v", {{"random", "normal"}, {"seed", 3}}}}}};
}

Json bsr_case(int qo_len, int kv_len, const Json& block, const Json& indptr, const Json& indices,
              const Json& mask = Json::object()) {
  Json value = base_case(qo_len, kv_len, {{"kv", "bsr"}, {"block", block}}, mask);
  value["workload"]["bsr"] = {{"block", block}, {"indptr", indptr}, {"indices", indices}};
  return value;
}

std::uint64_t load_bytes(Engine& engine, const Json& value) {
  const CaseFile file = parse_or_fail(value.dump());
  const Result<CaseRun> run = run_case(engine, file);
  CHECK(judge_run(file, run) == "");
  return run.ok() ? run->report.counters.global_load_bytes : 0;
}

std::string verdict(const Json& value, const char* header, const char* from, const char* to) {
  const CaseFile file = parse_or_fail(value.dump());
  const std::unique_ptr<Engine> engine =
      make_edited_engine(0, [&](Source& source) { replace_once(source, header, from, to); });
  return judge_run(file, run_case(*engine, file));
}

Json with_mask(Json value) {
  const int rows = value["workload"]["qo_len"][0].get<int>();
  const int keys = value["workload"]["kv_len"][0].get<int>();
  Json mask = Json::array();
  for (int i = 0; i < rows; ++i) {
    Json row = Json::array();
    for (int j = 0; j < keys; ++j) row.push_back((i * 7 + j * j) % 5 == 0 ? 1 : 0);
    mask.push_back(row);
  }
  value["spec"]["variant"]["mask"]["custom"] = true;
  value["workload"]["mask"] = {{"custom", Json::array({mask})}};
  return value;
}

}  // namespace

TEST_CASE("blocks that no row lists are never read", "[sparse]") {
  if (on_cuda()) return;  // the simulator counts, a GPU does not
  const std::unique_ptr<Engine> engine = make_test_engine();
  const std::uint64_t key_bytes = 2 * 64 * 2;  // a key and its value
  // The same items and tiles; in the second batch each of the two rows lists 32 keys more. A key is
  // copied by eight lanes; each of them reads its index and the request's place.
  const std::uint64_t one = load_bytes(*engine, bsr_case(32, 512, {16, 32}, {0, 1, 2}, {9, 3}));
  const std::uint64_t two =
      load_bytes(*engine, bsr_case(32, 512, {16, 32}, {0, 2, 4}, {9, 3, 3, 15}));
  CHECK(two - one >= 2 * 32 * key_bytes);
  CHECK(two - one <= 2 * 32 * (key_bytes + 8 * 16));
  // Four of sixteen blocks against all of them, beside what a launch reads without any.
  const std::uint64_t none =
      load_bytes(*engine, bsr_case(32, 512, {16, 32}, {0, 0, 0}, Json::array()));
  const std::uint64_t sparse =
      load_bytes(*engine, bsr_case(32, 512, {16, 32}, {0, 4, 8}, {0, 1, 3, 6, 2, 9, 11, 15}));
  const std::uint64_t dense =
      load_bytes(*engine, base_case(32, 512, {{"kv", "ragged"}}, Json::object()));
  CHECK(dense - none >= 2 * 512 * key_bytes);
  CHECK(sparse - none < (dense - none) / 3);
}

// 20 queries in rows of 5 and keys in blocks of 3: a tile ends inside a block, and of 100 keys the
// last block has one.
Json ragged_blocks(const Json& mask, int keys = 100) {
  std::vector<int> indices;
  std::vector<int> indptr = {0};
  for (int row = 0; row < 4; ++row) {
    for (int column = (keys - 1) / 3; column >= row; column -= 1 + row % 2)
      indices.push_back(column);
    indptr.push_back(static_cast<int>(indices.size()));
  }
  return bsr_case(20, keys, {5, 3}, indptr, indices, mask);
}

TEST_CASE("mutants of the sparse loaders and masks are noticed", "[sparse]") {
  const Json plain = ragged_blocks(Json::object());
  const Json causal = ragged_blocks({{"causal", true}}, 99);
  const Json windowed = ragged_blocks({{"window_left", 9}});
  const Json bits =
      with_mask(base_case(20, 100, {{"kv", "paged"}, {"page_size", 3}}, Json::object()));
  const Json block_bits = with_mask(plain);
  const Json whole_blocks = with_mask(ragged_blocks(Json::object(), 99));
  Json padded = base_case(3, 70, {{"kv", "padded"}}, Json::object());
  padded["workload"]["qo_len"] = {3, 2};
  padded["workload"]["kv_len"] = {70, 5};
  const Json* all[] = {&plain, &causal, &windowed, &bits, &block_bits, &whole_blocks, &padded};
  for (const Json* value : all)
    CHECK(verdict(*value, "loom/columns.cuh", "positions[column] : begin",
                  "positions[column] : begin") == "");

  struct Mutant {
    const char* name;
    const Json& value;
    const char* header;
    const char* from;
    const char* to;
  };
  const Mutant mutants[] = {
      {"the last block's missing keys", plain, "loom/copy.cuh", "key < static_cast<u32>(kv_len) ?",
       "true ?"},
      {"a tile of missing keys counted as full", plain, "loom/variant.cuh",
       "Config::kWindow || !all_exist", "Config::kWindow"},
      {"rows of the next list", plain, "loom/epilogue.cuh", "Config::kGroupSize < request.q_end",
       "Config::kGroupSize < request.qo_len"},
      {"positions of the walk, not of the keys", causal, "loom/columns.cuh",
       "? positions[column] : begin", "? begin + column : begin"},
      {"positions of another stage", causal, "loom/copy.cuh", "positions[stage * tile_rows +",
       "positions[(stage ^ 1) * tile_rows +"},
      {"a causal end in the walk", causal, "loom/variant.cuh",
       "if (Config::kCausal || Config::kWindow ||", "if (Config::kWindow ||"},
      {"a window in the walk", windowed, "loom/variant.cuh", "Config::kWindow && !Config::kBsr &&",
       "Config::kWindow &&"},
      {"bits highest first", block_bits, "loom/columns.cuh", ">> (bit & 7)) & 1",
       ">> (7 - (bit & 7))) & 1"},
      {"bits of the walk", block_bits, "loom/columns.cuh",
       "static_cast<i64>(token) * request.kv_len + position",
       "static_cast<i64>(token) * request.walk_len + position"},
      {"bits without a row's length", bits, "loom/columns.cuh",
       "static_cast<i64>(token) * request.kv_len + position",
       "static_cast<i64>(token) * (request.kv_len & ~7) + position"},
      {"words past the end of the array", bits, "loom/mask.cuh", "byte + 4 <= end", "true"},
      {"the second word forgotten", bits, "loom/mask.cuh", "high << 32 | low", "low"},
      {"words of the tile's first token", bits, "loom/mask.cuh", "(token - first_token) * kWords;",
       "0;"},
      {"full tiles of listed blocks under a custom mask", whole_blocks, "loom/variant.cuh",
       "(Config::kCustomMask && Config::kBsr) ||", ""},
      {"full tiles without their custom mask", bits, "attention_mma.cuh",
       "kHasFunctors<Config> || MaskTile<Config, Class>::kUsed", "kHasFunctors<Config>"},
      {"every request in the first slot", padded, "loom/copy.cuh",
       "row += request.batch * page_stride;", ";"},
      {"slots that begin at 0", padded, "loom/copy.cuh", "row += request.kv_begin * token_stride;",
       ";"},
  };
  for (const Mutant& mutant : mutants) {
    INFO(mutant.name);
    CHECK(verdict(mutant.value, mutant.header, mutant.from, mutant.to) != "");
  }
}

}  // namespace attnloom::testing
