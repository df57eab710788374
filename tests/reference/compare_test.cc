// SPDX-License-Identifier: Apache-2.0
#include "reference/compare.h"

#include <catch2/catch.hpp>

#include "tests/reference/problems.h"

namespace attnloom::reference {
namespace {

// Two tokens, two heads, two dimensions: rows (3,4), (0,0), (30,40), (6,8).
const Shape kShape{2, 2, 2};
const Output kWant{{3, 4, 0, 0, 30, 40, 6, 8}, {1, -kInfinity, 1000, 0}};

Comparison compare_changed(std::size_t element, double value, DType dtype = DType::kBf16) {
  Output got = kWant;
  got.o[element] = value;
  return compare(got, kWant, kShape, tolerance_of(dtype));
}

Comparison compare_lse(std::size_t element, double value, double largest_logit = 0) {
  Output got = kWant;
  got.lse[element] = value;
  Tolerance tolerance = tolerance_of(DType::kF16);
  if (largest_logit != 0) allow_approximate_functor(tolerance, largest_logit);
  return compare(got, kWant, kShape, tolerance);
}

TEST_CASE("Equal is equal") {
  const Comparison same = compare(kWant, kWant, kShape, tolerance_of(DType::kF16));
  CHECK(same.pass);
  CHECK(same.o.error == 0);
  CHECK(same.lse.error == 0);
  CHECK(same.failure.empty());
}

TEST_CASE("A row may be off by its share of its own norm") {
  CHECK(compare_changed(0, 3 + 0.049).pass);  // of ||(3,4)|| = 5: 1e-2 is 0.05
  const Comparison bad = compare_changed(0, 3 + 0.051);
  CHECK_FALSE(bad.pass);
  CHECK(bad.o.token == 0);
  CHECK(bad.o.head == 0);
  CHECK(bad.o.error == Approx(0.0102));
  CHECK(bad.failure == "o at token 0 head 0: error 0.0102, allowed 0.01");
  CHECK(compare_changed(7, 8 + 0.019, DType::kF16).pass);  // of 10: 2e-3 is 0.02
  const Comparison f16 = compare_changed(7, 8 + 0.021, DType::kF16);
  CHECK_FALSE(f16.pass);
  CHECK(f16.o.token == 1);
  CHECK(f16.o.head == 1);
}

TEST_CASE("The whole tensor has the tighter bound") {
  // ||want|| = sqrt(25 + 2500 + 100) = 51.23: 4e-3 is 0.2049, while the row of norm 50 alone may be
  // off by 0.5.
  CHECK(compare_changed(4, 30.2).pass);
  const Comparison bad = compare_changed(4, 30.21);
  CHECK_FALSE(bad.pass);
  CHECK(bad.tensor_error == Approx(0.21 / 51.2347538));
  CHECK(bad.failure.find("o as a whole") == 0);
}

TEST_CASE("A reference row of zeros is matched exactly") {
  CHECK(compare_changed(2, -0.0).pass);
  const Comparison bad = compare_changed(2, 1e-30);
  CHECK_FALSE(bad.pass);
  CHECK(bad.o.token == 0);
  CHECK(bad.o.head == 1);
  const Output zeros{{0, 0}, {}};
  CHECK(compare(zeros, zeros, {1, 1, 2}, tolerance_of(DType::kF16)).pass);
}

TEST_CASE("NaN anywhere fails, and is the worst") {
  for (std::size_t i = 0; i < 8; ++i) {
    const Comparison bad = compare_changed(i, kNan);
    CHECK_FALSE(bad.pass);
    CHECK(std::isnan(bad.o.error));
    CHECK_FALSE(compare_changed(i, kInfinity).pass);
  }
  for (std::size_t i = 0; i < 4; ++i) CHECK_FALSE(compare_lse(i, kNan).pass);
  const Output nan_o{{kNan}, {0}}, nan_lse{{1}, {kNan}};
  CHECK_FALSE(compare(nan_o, nan_o, {1, 1, 1}, tolerance_of(DType::kF16)).pass);
  CHECK_FALSE(compare(nan_lse, nan_lse, {1, 1, 1}, tolerance_of(DType::kF16)).pass);
  CHECK_FALSE(compare_expect(nan_o, nan_o, {1, 1, 1}, 1, 1).pass);
}

TEST_CASE("LSE: 1e-3 + 1e-6 |LSE|, -inf exactly") {
  CHECK(compare_lse(0, 1.00099).pass);
  CHECK_FALSE(compare_lse(0, 1.00101).pass);
  CHECK(compare_lse(2, 1000.00199).pass);
  const Comparison bad = compare_lse(2, 1000.0021);
  CHECK_FALSE(bad.pass);
  CHECK(bad.lse.token == 1);
  CHECK(bad.lse.head == 0);
  CHECK_FALSE(compare_lse(1, -1e30).pass);
  CHECK_FALSE(compare_lse(0, -kInfinity).pass);
  CHECK_FALSE(compare_lse(3, kInfinity).pass);
}

TEST_CASE("An approximate functor widens the bounds by its error on the largest logit") {
  CHECK_FALSE(compare_lse(0, 1.01).pass);
  CHECK(compare_lse(0, 1.01, 30.0).pass);  // 1e-3 + 0.015
  CHECK_FALSE(compare_lse(0, 1.0161, 30.0).pass);
  CHECK_FALSE(compare_lse(1, -50.0, 30.0).pass);
  Tolerance tolerance = tolerance_of(DType::kBf16);
  allow_approximate_functor(tolerance, 4.0);  // e = 2e-3
  CHECK(tolerance.row == Approx(1e-2 + 4e-3));
  CHECK(tolerance.tensor == Approx(4e-3 + 4e-3));
}

TEST_CASE("LSE may be left out, sizes may not differ") {
  Output got = kWant;
  got.lse.clear();
  const Comparison without = compare(got, kWant, kShape, tolerance_of(DType::kBf16));
  CHECK(without.pass);
  CHECK(without.lse.token == -1);
  got.o.pop_back();
  CHECK_FALSE(compare(got, kWant, kShape, tolerance_of(DType::kBf16)).pass);
  got = kWant;
  got.lse.pop_back();
  CHECK_FALSE(compare(got, kWant, kShape, tolerance_of(DType::kBf16)).pass);
}

TEST_CASE("expect: |difference| <= atol + rtol |want|") {
  const Output want{{100, -100}, {-kInfinity}};
  const auto check = [&](double a, double b, double lse) {
    return compare_expect({{a, b}, {lse}}, want, {1, 1, 2}, 0.1, 1e-2);
  };
  CHECK(check(101.09, -98.91, -kInfinity).pass);
  const Comparison bad = check(100, -101.2, -kInfinity);
  CHECK_FALSE(bad.pass);
  CHECK(bad.o.dim == 1);
  CHECK(bad.o.error == Approx(1.2));
  CHECK(bad.o.allowed == Approx(1.1));
  CHECK_FALSE(check(100, -100, -1e300).pass);
  CHECK_FALSE(check(kNan, -100, -kInfinity).pass);
  CHECK(compare_expect({{1}, {2}}, {{}, {2}}, {1, 1, 1}, 0, 0).pass);  // o not expected
}

}  // namespace
}  // namespace attnloom::reference
