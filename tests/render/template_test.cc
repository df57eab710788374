// SPDX-License-Identifier: Apache-2.0
// The tags of the entry templates against the keys of their contexts: a tag without a key would
// render as nothing, a key without a tag would be lost.
#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <vector>

#include "render/context.h"
#include "render/embedded.h"
#include "render/headers.h"
#include "spec/parse.h"
#include "specs.h"

namespace attnloom {
namespace {

// "classes.q": a value's name behind those of the sections around it. Sections end in "/".
using Tags = std::set<std::string>;

Tags tags_of(std::string_view text) {
  Tags tags;
  std::vector<std::string> sections;
  const auto qualified = [&](const std::string& name) {
    std::string path;
    for (const std::string& section : sections) path += section + "/";
    return path + name;
  };
  for (std::size_t at = text.find("{{"); at != std::string_view::npos; at = text.find("{{", at)) {
    const char kind = text.at(at + 2);
    const std::string_view end = kind == '{' ? "}}}" : "}}";
    const std::size_t close = text.find(end, at + 3);
    REQUIRE(close != std::string_view::npos);
    const std::string name(text.substr(at + 3, close - at - 3));
    INFO(name);
    // {{x}} would write &lt; for <, and the others have no use here.
    REQUIRE(std::string_view("{#/!").find(kind) != std::string_view::npos);
    if (kind == '{') tags.insert(qualified(name));
    if (kind == '#') {
      tags.insert(qualified(name + "/"));
      sections.push_back(name);
    }
    if (kind == '/') {
      REQUIRE_FALSE(sections.empty());
      REQUIRE(sections.back() == name);
      sections.pop_back();
    }
    at = close + end.size();
  }
  CHECK(sections.empty());
  return tags;
}

void add_keys(const TemplateContext& context, const std::string& prefix, Tags& keys) {
  for (const auto& [name, value] : context.values) keys.insert(prefix + name);
  for (const auto& [name, levels] : context.lists) {
    keys.insert(prefix + name + "/");
    for (const TemplateContext& level : levels) add_keys(level, prefix + name + "/", keys);
  }
}

Tags keys_of(const GoldenSpec& golden) {
  Result<ParsedSpec> parsed = parse_spec(golden.json);
  REQUIRE(parsed.ok());
  const KernelChoice choice = kernel_set(parsed->spec)->at(golden.kernel);
  Tags keys;
  const auto context_of = [&] {
    switch (parsed->spec.kernel) {
      case KernelKind::kMerge:
        return merge_context;
      case KernelKind::kAppend:
      case KernelKind::kAppendRope:
        return append_context;
      case KernelKind::kPageCopy:
        return page_copy_context;
      case KernelKind::kAttention:
        break;
    }
    return attention_context;
  }();
  add_keys(context_of(parsed->spec, choice), "", keys);
  return keys;
}

Tags tags_of_file(const char* name) {
  const EmbeddedFile* file = find_embedded(name, embedded_files());
  REQUIRE(file != nullptr);
  return tags_of(file->text);
}

TEST_CASE("every tag has a key and every key a tag") {
  // every_functor takes all sections of the template.
  CHECK(tags_of_file("attention.mustache") == keys_of(golden_specs().back()));
  CHECK(tags_of_file("merge.mustache") == keys_of(golden_specs()[3]));
  CHECK(tags_of_file("append.mustache") == keys_of(golden_specs()[4]));
  CHECK(tags_of_file("append.mustache") == keys_of(golden_specs()[5]));
  CHECK(tags_of_file("page_copy.mustache") == keys_of(golden_specs()[6]));
}

TEST_CASE("keys of the top level do not depend on the spec") {
  Tags want;
  for (const std::string& key : keys_of(golden_specs()[2])) {
    if (key.find('/') == std::string::npos || key.find('/') == key.size() - 1) want.insert(key);
  }
  Tags got;
  for (const std::string& key : keys_of(golden_specs()[0])) {
    if (key.find('/') == std::string::npos || key.find('/') == key.size() - 1) got.insert(key);
  }
  CHECK(got == want);
}

}  // namespace
}  // namespace attnloom
