// SPDX-License-Identifier: Apache-2.0
// The standalone merge kernel through the engine: worked values, empty states, strides, and the
// float64 reference.
#include <cmath>
#include <limits>

#include "engine/row_launch.h"
#include "kernels/device_tensors.h"
#include "kernels/kernel_rig.h"
#include "reference/generators.h"
#include "reference/merge.h"
#include "reference/number_format.h"

namespace attnloom::testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr int kDim = 64;
constexpr reference::Generator kNormal = reference::Generator::kNormal;

struct States {
  std::int64_t states = 0;
  std::int64_t tokens = 1;
  std::int64_t heads = 1;
  std::vector<double> o;      // [states][tokens][heads]: the value of every dim, plus the dim / 8
  std::vector<double> lse;    // [states][tokens][heads]
  std::int64_t head_pad = 0;  // > 0: lse is [states][heads][head_pad tokens]
  bool in_place = false;      // o is the place of the first state
};

struct Merged {
  std::vector<double> o;    // [tokens][heads][dim]
  std::vector<double> lse;  // [tokens][heads]
  bool padding_kept = true;
  std::string finding;
};

constexpr float kPadding = 1e30f;  // would outweigh every state

std::int64_t lse_place(const States& in, std::int64_t state, std::int64_t token,
                       std::int64_t head) {
  if (in.head_pad > 0) return (state * in.heads + head) * in.head_pad + token;
  return (state * in.tokens + token) * in.heads + head;
}

Merged run(Engine& engine, const States& in, DType dtype) {
  const std::string name(json_name(dtype));
  const auto kernels = engine.open(R"({"attnloom": 1, "kernel": "merge", "dtype": {"o": ")" + name +
                                   R"("}, "head_dim": {"vo": 64}})");
  INFO(kernels.status().to_string());
  REQUIRE(kernels.ok());
  DeviceTensors device(**engine.backend());
  const std::int64_t rows = in.tokens * in.heads;
  const std::int64_t row_room = in.head_pad > 0 ? in.heads * in.head_pad : rows;
  std::vector<std::uint16_t> o_in;
  std::vector<float> lse_in(static_cast<std::size_t>(in.states * row_room), kPadding);
  for (std::int64_t i = 0; i < in.states * rows; ++i) {
    const auto at = static_cast<std::size_t>(i);
    for (int dim = 0; dim < kDim; ++dim)
      o_in.push_back(reference::to_bits(in.o[at] + dim / 8, dtype));
    const std::int64_t place = lse_place(in, i / rows, i % rows / in.heads, i % in.heads);
    lse_in[static_cast<std::size_t>(place)] = static_cast<float>(in.lse[at]);
  }
  const TensorType type = dtype == DType::kF16 ? TensorType::kF16 : TensorType::kBf16;
  const std::int64_t row_elements = in.heads * kDim;
  const std::int64_t head = in.head_pad > 0 ? in.head_pad : 1;
  const std::int64_t token = in.head_pad > 0 ? 1 : in.heads;
  MergeTensors tensors;
  tensors.o_in = view_of(device.put(o_in, "o_in"), type, {in.states, in.tokens, in.heads, kDim},
                         {in.tokens * row_elements, row_elements, kDim, 1});
  tensors.lse_in = view_of(device.put(lse_in, "lse_in"), TensorType::kF32,
                           {in.states, in.tokens, in.heads}, {row_room, token, head});
  const std::vector<std::uint16_t> stale(static_cast<std::size_t>(rows * kDim), 0x4700);  // f16 7.0
  tensors.o = view_of(in.in_place ? tensors.o_in.data : device.put(stale, "o"), type,
                      {in.tokens, in.heads, kDim}, {row_elements, kDim, 1});
  const std::vector<float> stale_lse(static_cast<std::size_t>(row_room), 7.0f);
  tensors.lse =
      view_of(device.put(stale_lse, "lse"), TensorType::kF32, {in.tokens, in.heads}, {token, head});

  const Status status = run_merge(**kernels, tensors, nullptr);
  INFO(status.to_string());
  REQUIRE(status.ok());
  REQUIRE((*engine.backend())->synchronize(nullptr).ok());
  Merged out;
  out.finding = device.finding();
  for (const std::uint16_t bits : device.get<std::uint16_t>(tensors.o.data, stale.size()))
    out.o.push_back(reference::from_bits(bits, dtype));
  const std::vector<float> lse = device.get<float>(tensors.lse.data, stale_lse.size());
  for (std::int64_t i = 0; i < rows; ++i)
    out.lse.push_back(lse[static_cast<std::size_t>(lse_place(in, 0, i / in.heads, i % in.heads))]);
  for (std::int64_t i = 0; i < row_room; ++i) {
    if (in.head_pad > 0 && i % in.head_pad >= in.tokens && lse[static_cast<std::size_t>(i)] != 7.0f)
      out.padding_kept = false;
  }
  return out;
}

States one_row(const std::vector<double>& o, const std::vector<double>& lse) {
  return {.states = static_cast<std::int64_t>(o.size()), .o = o, .lse = lse};
}

void check_empty(const Merged& got) {
  CHECK(got.finding == "");
  CHECK(got.o == std::vector<double>(kDim, 0.0));
  CHECK(got.lse == std::vector<double>{-kInfinity});
}

// Row `row` of the float64 reference.
reference::State wanted_row(const States& in, std::int64_t row, DType dtype) {
  const std::int64_t rows = in.tokens * in.heads;
  std::vector<reference::State> states;
  for (std::int64_t s = 0; s < in.states; ++s) {
    const auto at = static_cast<std::size_t>(s * rows + row);
    reference::State state{{}, static_cast<double>(static_cast<float>(in.lse[at]))};
    for (int dim = 0; dim < kDim; ++dim)
      state.o.push_back(reference::round_to(in.o[at] + dim / 8, dtype));
    states.push_back(std::move(state));
  }
  const auto merged = reference::merge_all(states, kDim);
  REQUIRE(merged.ok());
  return *merged;
}

States
padded_splits() {  // head 1 row 0 is the worked one; the other rows have one state that is empty
  States in{.states = 2, .tokens = 3, .heads = 2, .head_pad = 4};
  in.o = {9, 0, 1, 2, 3, 4, 9, 4, 9, 9, 9, 9};
  in.lse = {0,          0,          0,          0,         0, 0, -kInfinity, std::log(3.0),
            -kInfinity, -kInfinity, -kInfinity, -kInfinity};
  return in;
}

Engine& engine() {
  static const std::unique_ptr<Engine> shared = make_test_engine();
  return *shared;
}

}  // namespace

TEST_CASE("the worked example: two chunks of two keys", "[merge]") {
  const double e1 = std::exp(1.0), e2 = std::exp(2.0), e3 = std::exp(3.0), e4 = std::exp(4.0);
  const States in = one_row({(10 * e1 + 20 * e2) / (e1 + e2), (30 * e3 + 40 * e4) / (e3 + e4)},
                            {std::log(e1 + e2), std::log(e3 + e4)});
  const Merged got = run(engine(), in, DType::kF16);
  CHECK(got.finding == "");
  CHECK(got.o[0] == Approx(34.93).margin(0.032));  // a step of f16 is 1/32 there
  CHECK(got.o[kDim - 1] == Approx(34.93 + 7).margin(0.064));
  CHECK(got.lse[0] == Approx(std::log(e1 + e2 + e3 + e4)).margin(1e-5));
}

TEST_CASE("B25: empty states merge to an empty state", "[merge]") {
  check_empty(run(engine(), one_row({0, 0}, {-kInfinity, -kInfinity}), DType::kF16));
  check_empty(run(engine(), one_row({}, {}), DType::kF16));
  States five = one_row({7, kNan, kInfinity, 0, 7}, std::vector<double>(5, -kInfinity));
  check_empty(run(engine(), five, DType::kBf16));
  five.in_place = true;
  check_empty(run(engine(), five, DType::kBf16));
}

TEST_CASE("B27: an empty side has no weight, whatever lies in it; +inf counts as empty",
          "[merge]") {
  for (const double empty : {-kInfinity, kInfinity}) {
    for (const double garbage : {0.0, 7.0, kNan, kInfinity}) {
      INFO(empty << " " << garbage);
      for (const States& in :
           {one_row({5, garbage}, {0, empty}), one_row({garbage, 5}, {empty, 0})}) {
        const Merged got = run(engine(), in, DType::kF16);
        CHECK(got.finding == "");
        CHECK(got.o[0] == 5.0);
        CHECK(got.o[kDim - 1] == 12.0);
        CHECK(got.lse[0] == 0.0);
      }
    }
    check_empty(run(engine(), one_row({1, 1}, {empty, kInfinity}), DType::kF16));
  }
}

TEST_CASE("B29: padded LSE buffers are read and written by their strides", "[merge]") {
  const Merged got = run(engine(), padded_splits(), DType::kF16);
  CHECK(got.finding == "");
  CHECK(got.o[kDim] == 3.0);
  CHECK(got.lse[1] == Approx(std::log(4.0)).margin(1e-6));
  const double others[] = {9, 0, 1, 2, 3, 4};
  for (const int row : {0, 2, 3, 4, 5}) {
    CHECK(got.o[static_cast<std::size_t>(row * kDim)] == others[row]);
    CHECK(got.lse[static_cast<std::size_t>(row)] == 0.0);
  }
  CHECK(got.padding_kept);
}

TEST_CASE("random states agree with the reference, in place too", "[merge]") {
  for (const DType dtype : {DType::kF16, DType::kBf16}) {
    States in{.states = 6, .tokens = 37, .heads = 3};  // several CTAs, the last one not full
    for (std::uint64_t i = 0; i < 6 * 37 * 3; ++i) {
      in.o.push_back(reference::random_value(kNormal, 1, i));
      in.lse.push_back(i % 7 == 0 ? -kInfinity : 20 * reference::random_value(kNormal, 2, i));
    }
    for (const bool in_place : {false, true}) {
      in.in_place = in_place;
      const Merged got = run(engine(), in, dtype);
      CHECK(got.finding == "");
      const double step = dtype == DType::kF16 ? 1.0 / 1024 : 1.0 / 128;
      for (std::int64_t row = 0; row < 37 * 3; ++row) {
        const reference::State wanted = wanted_row(in, row, dtype);
        CHECK(got.lse[static_cast<std::size_t>(row)] == Approx(wanted.lse).margin(1e-5));
        for (int dim = 0; dim < kDim; ++dim) {
          const double o = got.o[static_cast<std::size_t>(row * kDim + dim)];
          if (std::abs(o - wanted.o[static_cast<std::size_t>(dim)]) >
              step * std::max(1.0, std::abs(o)))
            FAIL("row " << row << ", dim " << dim << ": " << o << ", not "
                        << wanted.o[static_cast<std::size_t>(dim)]);
        }
      }
    }
  }
}

TEST_CASE("mutants of the merge are noticed", "[merge][mutants]") {
  const auto mutated = [](const char* from, const char* to, const States& in) {
    const auto one =
        make_edited_engine(0, [&](Source& source) { replace_once(source, "merge.cuh", from, to); });
    return run(*one, in, DType::kF16);
  };
  const Merged infinite = mutated("lse == -negative_infinity() ? negative_infinity() : lse", "lse",
                                  one_row({5, 7}, {0, kInfinity}));
  CHECK_FALSE(infinite.o[0] == 5.0);
  const Merged empty = mutated("total += lse == negative_infinity() ? 0.0f : ", "total += ",
                               one_row({0, 0}, {-kInfinity, -kInfinity}));
  CHECK_FALSE(empty.lse[0] == -kInfinity);
  const Merged dense =
      mutated("head * args.lse_in_head_stride", "head * args.tokens", padded_splits());
  CHECK_FALSE(dense.lse[1] == Approx(std::log(4.0)).margin(1e-6));
}

}  // namespace attnloom::testing
