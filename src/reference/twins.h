// SPDX-License-Identifier: Apache-2.0
// Float64 twins of the shipped variants: written from the formula, not from the functor text. Pure;
// thread-safe.
//
// A twin is found by the variant's name. Whoever asks must know that the spec's functors are the
// shipped ones: a name is the user's own, and a changed functor under a shipped name would be
// judged by the wrong formula.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "reference/attention.h"

namespace attnloom::reference {

// The params of a variant as the kernel gets them: already rounded to their type.
struct ParamValues {
  std::map<std::string, double> scalars;
  std::map<std::string, std::vector<double>> arrays;
};

// What a variant is used on: sizes that its arrays must have.
struct TwinShape {
  int q_heads = 0;
  int dim_qk = 0;
};

struct Twin {
  bool softmax = true;
  // The shipped functor uses an approximate instruction (tanh): compare.h widens the bounds for it.
  bool approximate = false;
  Hooks hooks;
};

// Those of examples/specs with functors, by name; docs/SPEC.md lists their params.
std::vector<std::string_view> twin_names();
bool has_twin(std::string_view variant);

// SPEC_UNSUPPORTED for a variant without a twin, WORKLOAD_INVALID naming a missing param or its
// wanted size.
Result<Twin> make_twin(std::string_view variant, const ParamValues& params, const TwinShape& shape);

// The twin of a variant composed of shipped ones: each transform of the list in turn, and every
// mask. Names without a twin have no functors and add none.
Result<Twin> compose_twins(const std::vector<std::string>& variants, const ParamValues& params,
                           const TwinShape& shape);

}  // namespace attnloom::reference
