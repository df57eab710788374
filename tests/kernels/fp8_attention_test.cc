// SPDX-License-Identifier: Apache-2.0
// Attention over an 8-bit cache: every code exactly, what is no number, scales, and head dims, tile
// classes and layouts against the float64 reference on the dequantised cache. On a chip that
// unpacks in one instruction and on one that does it in integers.
#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "base/json.h"
#include "kernels/kernel_rig.h"
#include "reference/number_format.h"

namespace attnloom::testing {
namespace {

constexpr std::array kChips = {"h200", "a100"};

struct Cell {
  const char* q = "f16";
  const char* kv = "e4m3";
  int qk = 64;
  int vo = 64;
  int group = 2;
  int page = 0;  // 0 is ragged
  const char* tile = R"("auto")";
  const char* variant = R"({"name": "plain", "mask": {"causal": true}})";
  const char* scale = "none";
  std::vector<int> qo_len = {1};
  std::vector<int> kv_len = {1};
  const char* order = "NHD";
};

constexpr int kKvHeads = 2;

Json case_of(const Cell& cell) {
  Json layout = {{"kv", cell.page == 0 ? "ragged" : "paged"}};
  if (cell.page != 0) layout["page_size"] = cell.page;
  Json variant = Json::parse(cell.variant);
  variant["kv_scale"] = cell.scale;
  const std::string scale = cell.scale;
  Json workload = {{"heads", {{"q", cell.group * kKvHeads}, {"kv", kKvHeads}}},
                   {"qo_len", cell.qo_len},
                   {"kv_len", cell.kv_len},
                   {"kv_order", cell.order}};
  if (scale == "tensor") {
    workload["k_scale"] = 0.4;
    workload["v_scale"] = 3.0;
  }
  if (scale == "head") {
    workload["k_scale"] = {0.5, 0.2};
    workload["v_scale"] = {2.5, 0.1};
  }
  Json inputs = {{"q", {{"random", "normal"}, {"seed", 1}}},
                 {"k", {{"random", "normal"}, {"seed", 2}}},
                 {"v", {{"random", "normal"}, {"seed", 3}}}};
  if (variant["name"] == "soft_cap") inputs["params"] = {{"cap", 8.0}};
  return {{"case", 1},
          {"spec",
           {{"attnloom", 1},
            {"kernel", "attention"},
            {"dtype", {{"q", cell.q}, {"kv", cell.kv}, {"o", cell.q}}},
            {"head_dim", {{"qk", cell.qk}, {"vo", cell.vo}}},
            {"group_size", cell.group},
            {"layout", layout},
            {"tile", Json::parse(cell.tile)},
            {"variant", variant}}},
          {"workload", workload},
          {"inputs", inputs}};
}

// One KV head and one query head, one query a request on one key.
Json one_key_case(int query_tile, const char* kv, int requests, int dim, const char* variant) {
  Cell cell{.kv = kv,
            .qk = dim,
            .vo = dim,
            .group = 1,
            .variant = variant,
            .qo_len = std::vector<int>(static_cast<std::size_t>(requests), 1),
            .kv_len = std::vector<int>(static_cast<std::size_t>(requests), 1)};
  Json made = case_of(cell);
  made["workload"]["heads"] = {{"q", 1}, {"kv", 1}};
  made["spec"]["tile"] = {{"q", query_tile}, {"kv", 64}};
  made["workload"]["scale"] = 1.0;
  return made;
}

constexpr const char* kPlain = R"({"name": "plain"})";
// A weight is then the logit itself: what the first product gives reaches the output exactly.
constexpr const char* kLogitsAsWeights = R"({"name": "plain", "softmax": false})";

std::vector<double> finite_numbers(DType dtype) {
  std::vector<double> numbers;
  for (unsigned code = 0; code < 256; ++code) {
    const double value = reference::from_bits(static_cast<std::uint16_t>(code), dtype);
    if (std::isfinite(value)) numbers.push_back(value);
  }
  return numbers;
}

struct Format {
  const char* name;
  DType dtype;
  std::size_t finite;
};
constexpr std::array kFormats = {Format{"e4m3", DType::kE4m3, 254},
                                 Format{"e5m2", DType::kE5m2, 248}};

Result<CaseRun> run(Engine& engine, const Json& json) {
  const CaseFile file = parse_or_fail(json.dump());
  return run_case(engine, file);
}

}  // namespace

TEST_CASE("every finite code of a value comes out exactly", "[fp8_attention]") {
  const int query_tile = GENERATE(1, 16);  // one of each family
  for (const char* chip : kChips) {
    const std::unique_ptr<Engine> engine = make_test_engine(0, chip);
    for (const Format& format : kFormats) {
      const std::vector<double> numbers = finite_numbers(format.dtype);
      REQUIRE(numbers.size() == format.finite);
      Json json = one_key_case(query_tile, format.name, 2, 256, kPlain);
      Json rows = Json::array();
      for (const std::size_t shift : {0u, 77u}) {  // a code stands in two places
        Json row = Json::array();
        for (std::size_t d = 0; d < 256; ++d) row.push_back(numbers[(d + shift) % numbers.size()]);
        rows.push_back(Json::array({row}));
      }
      json["inputs"]["q"] = 0;
      json["inputs"]["v"] = rows;
      json["expect"] = {{"o", rows}};
      INFO(chip << " " << format.name);
      const CaseFile file = parse_or_fail(json.dump());
      CHECK(judge_run(file, run_case(*engine, file)) == "");
    }
  }
}

TEST_CASE("every finite code of a key comes out exactly, in every dim", "[fp8_attention]") {
  const int query_tile = GENERATE(1, 16);  // one of each family
  constexpr int kDim = 96;
  for (const char* chip : kChips) {
    const std::unique_ptr<Engine> engine = make_test_engine(0, chip);
    for (const Format& format : kFormats) {
      const std::vector<double> numbers = finite_numbers(format.dtype);
      Json json = one_key_case(query_tile, format.name, static_cast<int>(numbers.size()), kDim,
                               kLogitsAsWeights);
      Json q = Json::array();
      Json k = Json::array();
      Json o = Json::array();
      for (std::size_t i = 0; i < numbers.size(); ++i) {
        std::vector<double> query(kDim, 0.0);
        std::vector<double> key(kDim, 1.0);  // what a wrong dim would pick up
        query[i % kDim] = 1.0;
        key[i % kDim] = numbers[i];
        q.push_back(Json::array({query}));
        k.push_back(Json::array({key}));
        o.push_back(numbers[i]);
      }
      json["inputs"] = {{"q", q}, {"k", k}, {"v", 1}};
      json["expect"] = {{"o", o}};
      INFO(chip << " " << format.name);
      const CaseFile file = parse_or_fail(json.dump());
      CHECK(judge_run(file, run_case(*engine, file)) == "");
    }
  }
}

TEST_CASE("a NaN code reaches the rows that see it and no other", "[fp8_attention]") {
  for (const char* chip : kChips) {
    const std::unique_ptr<Engine> engine = make_test_engine(0, chip);
    for (const Format& format : kFormats) {
      for (const int nan_dim : {0, 63}) {
        Json json = case_of({.kv = format.name, .page = 16, .qo_len = {12}, .kv_len = {12}});
        std::vector<double> row(64, 0.5);
        Json key = row;
        key[static_cast<std::size_t>(nan_dim)] = "nan";
        Json k = Json::array();
        for (int token = 0; token < 12; ++token)
          k.push_back(Json::array({token == 7 ? key : Json(row), Json(row)}));
        json["inputs"]["k"] = k;
        const Result<CaseRun> got = run(*engine, json);
        INFO(chip << " " << format.name << " " << got.status().to_string());
        REQUIRE(got.ok());
        CHECK(got->report.findings.empty());
        for (std::size_t row_index = 0; row_index < 12 * 4; ++row_index) {
          const bool sees = row_index / 4 >= 7 && row_index % 4 < 2;  // of the first KV head
          INFO("row " << row_index);
          CHECK(std::isnan(got->output.lse[row_index]) == sees);
          for (std::size_t d = 0; d < 64; ++d)
            REQUIRE(std::isnan(got->output.o[row_index * 64 + d]) == sees);
        }
      }
    }
  }
}

TEST_CASE("an infinity of E5M2 stays one; a NaN value is one in its dim only", "[fp8_attention]") {
  const int query_tile = GENERATE(1, 16);  // one of each family
  const std::unique_ptr<Engine> engine = make_test_engine();
  Json json = one_key_case(query_tile, "e5m2", 1, 32, kPlain);
  Json value = std::vector<double>(32, 1.0);
  value[5] = "inf";
  value[6] = "-inf";
  value[11] = "nan";
  json["inputs"]["v"] = Json::array({Json::array({value})});
  const Result<CaseRun> got = run(*engine, json);
  REQUIRE(got.ok());
  for (std::size_t d = 0; d < 32; ++d) {
    const double o = got->output.o[d];
    INFO(d);
    if (d == 5 || d == 6) {
      CHECK((std::isinf(o) && std::signbit(o) == (d == 6)));
    } else if (d == 11) {
      CHECK(std::isnan(o));
    } else {
      CHECK(o == 1.0);
    }
  }
}

TEST_CASE("queries past f16 saturate, and bf16 queries within it are exact", "[fp8_attention]") {
  const int query_tile = GENERATE(1, 16);  // one of each family
  const std::unique_ptr<Engine> engine = make_test_engine();
  Json json = one_key_case(query_tile, "e4m3", 3, 32, kPlain);
  json["spec"]["dtype"] = {{"q", "bf16"}, {"kv", "e4m3"}, {"o", "bf16"}};
  Json q = Json::array();
  for (const double x : {1.0e6, -3.0e38, 200.0}) {
    std::vector<double> row(32, 0.0);
    row[9] = x;
    q.push_back(Json::array({row}));
  }
  json["inputs"] = {{"q", q}, {"k", 0.001953125}, {"v", 1}};
  const Result<CaseRun> got = run(*engine, json);
  REQUIRE(got.ok());
  CHECK(got->output.lse[0] == Approx(65504.0 / 512).epsilon(1e-6));
  CHECK(got->output.lse[1] == Approx(-65504.0 / 512).epsilon(1e-6));
  CHECK(got->output.lse[2] == Approx(200.0 / 512).epsilon(1e-6));
}

TEST_CASE("scales of a tensor and of each head change the output as they say", "[fp8_attention]") {
  const std::unique_ptr<Engine> engine = make_test_engine();
  for (const char* scale : {"tensor", "head"}) {
    const Cell cell{.scale = scale, .qo_len = {3}, .kv_len = {40}};
    Json json = case_of(cell);
    const Result<CaseRun> plain = run(*engine, json);
    REQUIRE(plain.ok());
    Json& value_scale = json["workload"]["v_scale"];
    Json& changed = value_scale.is_array() ? value_scale[1] : value_scale;
    changed = 2 * changed.get<double>();
    const Result<CaseRun> doubled = run(*engine, json);
    REQUIRE(doubled.ok());
    const std::size_t row = 64;
    for (std::size_t i = 0; i < plain->output.o.size(); ++i) {
      const bool of_second_head = i / row % 4 >= 2;
      const double factor = value_scale.is_array() && !of_second_head ? 1 : 2;
      REQUIRE(doubled->output.o[i] == factor * plain->output.o[i]);
    }
    CHECK(doubled->output.lse == plain->output.lse);
    json["workload"]["k_scale"] = 1.5;
    const Result<CaseRun> other = run(*engine, json);
    REQUIRE(other.ok());
    CHECK(other->output.lse != plain->output.lse);
  }
}

TEST_CASE("head dims, classes and layouts agree with the reference", "[fp8_attention]") {
  constexpr const char* kSoftCap =
      R"({"name": "soft_cap", "mask": {"causal": true}, "params": [{"name": "cap", "type": "f32"}],
          "logits_transform": "return cap * loom::tanh(logits / cap);"})";
  constexpr const char* kWindow =
      R"({"name": "plain", "mask": {"causal": true, "window_left": 50}})";
  const std::vector<int> kDecode = {1, 1, 1};
  const std::vector<int> kDecodeKv = {300, 17, 1000};
  const std::vector<int> kPrefill = {150, 9};
  const std::vector<int> kPrefillKv = {190, 140};
  const std::vector<Cell> cells = {
      {"bf16", "e4m3", 128, 128, 4, 16, R"("auto")", kPlain, "tensor", kDecode, kDecodeKv},
      {"f16", "e5m2", 32, 32, 1, 1, R"({"q": 16, "kv": 64})", kPlain, "head", kDecode, kDecodeKv},
      {"f16", "e4m3", 96, 96, 3, 16, R"({"q": 32, "kv": 64})", kWindow, "head", kPrefill,
       kPrefillKv, "HND"},
      {"bf16", "e5m2", 64, 64, 2, 0, R"({"q": 64, "kv": 64})", kSoftCap, "none", kPrefill,
       kPrefillKv},
      {"bf16", "e4m3", 128, 128, 2, 1, R"({"q": 128, "kv": 32})", kWindow, "tensor", kPrefill,
       kPrefillKv},
      {"bf16", "e4m3", 192, 128, 2, 16, R"("auto")", kSoftCap, "head", kPrefill, kPrefillKv},
      {"bf16", "e4m3", 256, 256, 4, 16, R"("auto")", kPlain, "head", kDecode, kDecodeKv},
      {"f16", "e5m2", 256, 256, 2, 0, R"({"q": 128, "kv": 32})", kPlain, "none", kPrefill,
       kPrefillKv},
      {"bf16",
       "e5m2",
       64,
       64,
       4,
       16,
       R"({"classes": [16, 128]})",
       kPlain,
       "tensor",
       {1, 130},
       {500, 200}},
  };
  for (const char* chip : kChips) {
    const std::unique_ptr<Engine> engine = make_test_engine(0, chip);
    for (std::size_t i = 0; i < cells.size(); ++i) {
      const std::string text = case_of(cells[i]).dump();
      INFO(chip << " " << text);
      const CaseFile file = parse_or_fail(text);
      CHECK(judge_run(file, run_case(*engine, file)) == "");
    }
  }
}

TEST_CASE("padded rows and listed blocks of 8-bit elements", "[fp8_attention]") {
  // Of 12 query tokens in rows of 5 against blocks of 3 keys: every other block, last ones first.
  Json indptr = {0};
  Json indices = Json::array();
  for (int row = 0; row < 3; ++row) {
    for (int block = 66 - row; block >= 0; block -= 2) indices.push_back(block);
    indptr.push_back(indices.size());
  }
  const Json bsr = {{"block", {5, 3}}, {"indptr", indptr}, {"indices", indices}};
  for (const char* chip : kChips) {
    const std::unique_ptr<Engine> engine = make_test_engine(0, chip);
    for (const char* tile : {R"({"q": 16, "kv": 128})", R"({"q": 64, "kv": 32})"}) {
      for (const char* order : {"NHD", "HND"}) {
        Json json = case_of({.qk = 128,
                             .vo = 96,
                             .tile = tile,
                             .scale = "head",
                             .qo_len = {12},
                             .kv_len = {200},
                             .order = order});
        for (const char* layout : {R"({"kv": "padded"})", R"({"kv": "bsr", "block": [5, 3]})"}) {
          json["spec"]["layout"] = Json::parse(layout);
          if (json["spec"]["layout"]["kv"] == "bsr") json["workload"]["bsr"] = bsr;
          INFO(chip << " " << json.dump());
          const CaseFile file = parse_or_fail(json.dump());
          CHECK(judge_run(file, run_case(*engine, file)) == "");
        }
      }
    }
  }
}

TEST_CASE("a planted fault in the way of 8-bit keys and values is noticed", "[fp8_attention]") {
  if (on_cuda()) return;
  struct Mutant {
    const char* header;
    const char* from;
    const char* to;
  };
  const std::vector<Mutant> mutants = {
      {"loom/operands.cuh", "block[0] = unpack2_f16<0, 1>", "block[0] = unpack2_f16<2, 3>"},
      {"loom/operands.cuh", "= unpack2_f16<1, 3>", "= unpack2_f16<0, 2>"},
      {"loom/operands.cuh", "as_f16(x.z, tag), as_f16(y.x", "as_f16(x.y, tag), as_f16(y.x"},
      {"loom/operands.cuh", "__syncthreads();", ""},
      {"attention_mma.cuh", "odd[0] * scale, even[1]", "even[1] * scale, odd[0]"},
      {"loom/variant.cuh", "scales[work.kv_head()]", "scales[0]"},
      {"loom/variant.cuh", "* kv_scale<Config>(args.k_scale, work)", ""},
      {"loom/copy.cuh", "(row & 1) << 2", "(row & 1) << 1"},
  };
  const Cell cell{.q = "bf16",
                  .qk = 96,
                  .page = 16,
                  .tile = R"({"q": 64, "kv": 64})",
                  .scale = "head",
                  .qo_len = {20},
                  .kv_len = {90}};
  const CaseFile file = parse_or_fail(case_of(cell).dump());
  CHECK(judge_run(file, run_case(*make_edited_engine(0, [](Source&) {}), file)) == "");
  for (const Mutant& mutant : mutants) {
    const auto engine = make_edited_engine(
        0, [&](Source& source) { replace_once(source, mutant.header, mutant.from, mutant.to); });
    INFO(mutant.header << ": " << mutant.from);
    CHECK(judge_run(file, run_case(*engine, file)) != "");
  }
}

}  // namespace attnloom::testing
