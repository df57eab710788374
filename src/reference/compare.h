// SPDX-License-Identifier: Apache-2.0
// How near to the reference is near enough (DESIGN §10). Pure; thread-safe.
//
// One rule over all others: a NaN anywhere, on either side, fails.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "reference/attention.h"
#include "spec/types.h"

namespace attnloom::reference {

// Tokens and heads of o, [tokens][heads][dim], and of lse, [tokens][heads].
struct Shape {
  std::int64_t tokens = 0;
  int heads = 0;
  int dim = 0;
};

struct Tolerance {
  double row = 0;     // ||got - want||2 <= row * ||want||2, each (token, head)
  double tensor = 0;  // the same over all of o
  double lse_absolute = 1e-3;
  double lse_relative = 1e-6;
};

// The bounds for an output dtype: bf16 1e-2 and 4e-3, f16 2e-3 and 1e-3.
// REQUIRES: dtype is kF16 or kBf16.
Tolerance tolerance_of(DType dtype);

// For functors that are approximate on the device (tanh, 5e-4 of its value): every logit may be off
// by e = 5e-4 * largest_logit. That moves the LSE by at most e, and a weight by a factor of at most
// exp(2 e), so o gets 2 e more, a row and in all.
void allow_approximate_functor(Tolerance& tolerance, double largest_logit);

// A place and its figure: error / allowed > 1 fails. NaN is worse than any number.
struct Worst {
  std::int64_t token = -1;  // -1: nothing compared
  int head = -1;
  int dim = -1;        // -1: a whole row or an lse
  double error = 0;    // relative norm for rows of o, absolute otherwise
  double allowed = 0;  // in the same measure
};

struct Comparison {
  bool pass = false;
  Worst o;                  // the worst row (compare) or element (compare_expect)
  double tensor_error = 0;  // relative norm over all of o; compare only
  Worst lse;                // token -1 when lse was not compared
  std::string failure;      // one line naming the first thing that failed; empty when pass
};

// A reference row of zeros must be matched exactly, and so must an lse of -inf. `got.lse` may be
// empty: not compared.
Comparison compare(const Output& got, const Output& want, const Shape& shape,
                   const Tolerance& tolerance);

// |got - want| <= atol + rtol * |want|, each element; infinite values must be equal. An empty want
// is not compared.
Comparison compare_expect(const Output& got, const Output& want, const Shape& shape, double atol,
                          double rtol);

}  // namespace attnloom::reference
