// SPDX-License-Identifier: Apache-2.0
// What a case's output must be: by its own "expect", and by the float64 reference. Pure;
// thread-safe.
#pragma once

#include <optional>

#include "base/status.h"
#include "reference/attention.h"
#include "reference/compare.h"
#include "tools/case/case_file.h"

namespace attnloom {

// The case as the reference takes it, without the variant's element functors.
reference::Problem case_problem(const CaseFile& file);

struct CaseReference {
  reference::Output output;
  reference::Tolerance
      tolerance;  // of the output dtype, widened where the shipped functor is approximate
};

// Solves the case with the twin of the variant's name, or plainly where the variant has no functor
// at all. SPEC_UNSUPPORTED where no twin stands for the spec: another name, or functors that the
// shipped variant lacks.
Result<CaseReference> solve_case(const CaseFile& file);

reference::Comparison compare_with_reference(const CaseFile& file, const CaseReference& wanted,
                                             const reference::Output& got);
// nullopt where the case expects nothing.
std::optional<reference::Comparison> compare_with_expect(const CaseFile& file,
                                                         const reference::Output& got);

}  // namespace attnloom
