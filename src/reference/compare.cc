// SPDX-License-Identifier: Apache-2.0
#include "reference/compare.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

namespace attnloom::reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Written so that a NaN is not within anything.
bool within(double error, double allowed) {
  return error <= allowed;
}

// error / allowed, without 0/0: exactness asked and met is 0.
double badness(const Worst& worst) {
  if (worst.error == 0) return 0;
  return worst.error / worst.allowed;
}

void keep_worse(Worst& worst, const Worst& other) {
  const double before = badness(worst);
  const double after = badness(other);
  if (worst.token < 0 || (std::isnan(after) && !std::isnan(before)) || after > before)
    worst = other;
}

// Not std::to_string: six fixed digits print 1e-9 as 0, and it follows the locale.
std::string print(double value) {
  char text[32];
  constexpr int kDigits = 4;
  const auto end =
      std::to_chars(text, text + sizeof text, value, std::chars_format::general, kDigits).ptr;
  return std::string(text, end);
}

std::string place(const Worst& worst) {
  std::string text = "token " + std::to_string(worst.token) + " head " + std::to_string(worst.head);
  if (worst.dim >= 0) text += " dim " + std::to_string(worst.dim);
  return text;
}

void fail(Comparison& comparison, std::string failure) {
  if (comparison.failure.empty()) comparison.failure = std::move(failure);
}

void fail_at(Comparison& comparison, const std::string& what, const Worst& worst) {
  fail(comparison, what + " at " + place(worst) + ": error " + print(worst.error) + ", allowed " +
                       print(worst.allowed));
}

bool sizes_agree(const std::vector<double>& got, const std::vector<double>& want, std::int64_t size,
                 const std::string& name, Comparison& comparison) {
  if (std::ssize(got) == size && std::ssize(want) == size) return true;
  fail(comparison, name + " has " + std::to_string(got.size()) + " elements, wanted " +
                       std::to_string(want.size()) + ", and the shape asks for " +
                       std::to_string(size));
  return false;
}

struct Norms {
  double error = 0;  // squared
  double want = 0;   // squared
  bool equal = true;

  void add(double got, double wanted) {
    equal = equal && got == wanted;
    error += (got - wanted) * (got - wanted);
    want += wanted * wanted;
  }
  double ratio() const {
    if (equal) return 0;
    return want == 0 ? (std::isnan(error) ? error : kInfinity) : std::sqrt(error / want);
  }
};

void compare_rows(const Output& got, const Output& want, const Shape& shape,
                  const Tolerance& tolerance, Comparison& comparison) {
  Norms tensor;
  for (std::int64_t token = 0; token < shape.tokens; ++token) {
    for (int head = 0; head < shape.heads; ++head) {
      const std::int64_t start = (token * shape.heads + head) * shape.dim;
      Norms row;
      for (int d = 0; d < shape.dim; ++d) {
        const auto i = static_cast<std::size_t>(start + d);
        row.add(got.o[i], want.o[i]);
        tensor.add(got.o[i], want.o[i]);
      }
      const Worst here{token, head, -1, row.ratio(), tolerance.row};
      if (!within(here.error, here.allowed)) fail_at(comparison, "o", here);
      keep_worse(comparison.o, here);
    }
  }
  comparison.tensor_error = tensor.ratio();
  if (!within(comparison.tensor_error, tolerance.tensor)) {
    fail(comparison, "o as a whole: error " + print(comparison.tensor_error) + ", allowed " +
                         print(tolerance.tensor));
  }
}

// Equal infinities differ by NaN and are equal all the same.
double difference(double got, double want) {
  return got == want ? 0 : std::abs(got - want);
}

// Elements of [tokens][heads][dim], each within absolute + relative * |want|.
void compare_elements(const std::string& name, const std::vector<double>& got,
                      const std::vector<double>& want, const Shape& shape, double absolute,
                      double relative, Worst& worst, Comparison& comparison) {
  for (std::int64_t i = 0; i < std::ssize(want); ++i) {
    const double wanted = want[static_cast<std::size_t>(i)];
    // An infinite wanted value must not make the bound infinite.
    const double allowed = std::isinf(wanted) ? 0 : absolute + relative * std::abs(wanted);
    const std::int64_t row = i / shape.dim;
    const Worst here{row / shape.heads, static_cast<int>(row % shape.heads),
                     shape.dim == 1 ? -1 : static_cast<int>(i % shape.dim),
                     difference(got[static_cast<std::size_t>(i)], wanted), allowed};
    if (!within(here.error, here.allowed)) fail_at(comparison, name, here);
    keep_worse(worst, here);
  }
}

}  // namespace

Tolerance tolerance_of(DType dtype) {
  return dtype == DType::kF16 ? Tolerance{.row = 2e-3, .tensor = 1e-3}
                              : Tolerance{.row = 1e-2, .tensor = 4e-3};
}

void allow_approximate_functor(Tolerance& tolerance, double largest_logit) {
  constexpr double kRelativeError = 5e-4;
  const double error = kRelativeError * std::abs(largest_logit);
  tolerance.lse_absolute += error;
  tolerance.row += 2 * error;
  tolerance.tensor += 2 * error;
}

Comparison compare(const Output& got, const Output& want, const Shape& shape,
                   const Tolerance& tolerance) {
  Comparison comparison;
  const std::int64_t rows = shape.tokens * shape.heads;
  if (sizes_agree(got.o, want.o, rows * shape.dim, "o", comparison)) {
    compare_rows(got, want, shape, tolerance, comparison);
  }
  if (!got.lse.empty() && sizes_agree(got.lse, want.lse, rows, "lse", comparison)) {
    compare_elements("lse", got.lse, want.lse, {shape.tokens, shape.heads, 1},
                     tolerance.lse_absolute, tolerance.lse_relative, comparison.lse, comparison);
  }
  comparison.pass = comparison.failure.empty();
  return comparison;
}

Comparison compare_expect(const Output& got, const Output& want, const Shape& shape, double atol,
                          double rtol) {
  Comparison comparison;
  const std::int64_t rows = shape.tokens * shape.heads;
  if (!want.o.empty() && sizes_agree(got.o, want.o, rows * shape.dim, "o", comparison)) {
    compare_elements("o", got.o, want.o, shape, atol, rtol, comparison.o, comparison);
  }
  if (!want.lse.empty() && sizes_agree(got.lse, want.lse, rows, "lse", comparison)) {
    compare_elements("lse", got.lse, want.lse, {shape.tokens, shape.heads, 1}, atol, rtol,
                     comparison.lse, comparison);
  }
  comparison.pass = comparison.failure.empty();
  return comparison;
}

}  // namespace attnloom::reference
