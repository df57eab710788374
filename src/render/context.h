// SPDX-License-Identifier: Apache-2.0
// Spec x KernelChoice -> the values of an entry template's tags, apart from render.cc so that a
// test can compare keys with tags: mustache renders a tag without a key as nothing. Pure;
// thread-safe.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "spec/spec.h"
#include "spec/tiles.h"

namespace attnloom {

// A level of tags. Plain values, and lists whose elements are levels; a section that is to vanish
// is an empty list.
struct TemplateContext {
  std::vector<std::pair<std::string, std::string>> values;
  std::vector<std::pair<std::string, std::vector<TemplateContext>>> lists;
};

// REQUIRES: as render().
TemplateContext attention_context(const Spec& spec, const KernelChoice& choice);
TemplateContext functors_context(const Spec& spec, const KernelChoice& choice);
TemplateContext merge_context(const Spec& spec, const KernelChoice& choice);
// append and append_rope.
TemplateContext append_context(const Spec& spec, const KernelChoice& choice);
TemplateContext page_copy_context(const Spec& spec, const KernelChoice& choice);

}  // namespace attnloom
