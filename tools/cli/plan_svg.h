// SPDX-License-Identifier: Apache-2.0
// A plan as a picture (SVG 1.1): a row for each CTA, a box for each item as wide as its cost, one
// colour a request, a grey and hatching a level of shared prefixes, edges from the parts of a split
// tile to the part that merges them. Pure: the same plan gives the same bytes. Thread-safe.
#pragma once

#include <string>

#include "tools/cli/plan_view.h"

namespace attnloom::cli {

// `title`: any text, such as a file's name.
std::string draw_plan(const PlanView& plan, const std::string& title);

}  // namespace attnloom::cli
