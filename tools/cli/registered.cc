// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/registered.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include "base/json.h"
#include "spec/parse.h"
#include "spec/shipped.h"
#include "spec/variant_rules.h"
#include "tools/cli/output.h"

namespace attnloom::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEnding = ".json";

bool has_text(const Variant& variant) {
  return std::any_of(functor_fields().begin(), functor_fields().end(),
                     [&](const auto& field) { return !(variant.*field.text).empty(); });
}

// Everything of a variant that becomes program text by what the user wrote.
std::string identity(const Variant& variant) {
  Spec spec;
  spec.variant = variant;
  const Json json = spec_to_json(spec)["variant"];
  Json text = Json::object();
  for (const auto& field : functor_fields()) text[std::string(field.json)] = variant.*field.text;
  text["params"] = json.value("params", Json::array());
  return canonical_json(text);
}

Result<std::string> read_shipped(std::string_view name) {
  std::vector<std::string> known;
  for (const EmbeddedFile& file : shipped_specs()) {
    known.emplace_back(file.name.substr(0, file.name.size() - kEnding.size()));
    if (known.back() == name) return std::string(file.text);
  }
  const std::string near = nearest_name(name, known);
  return make_error(Code::kArgumentInvalid, "--variants",
                    "neither a folder nor a shipped variant: " + std::string(name),
                    near.empty() ? "name a folder of spec files" : "did you mean " + near + "?");
}

Result<std::vector<std::string>> spec_files(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (at->path().extension() == kEnding) paths.push_back(at->path().string());
  if (error)
    return make_error(Code::kArgumentInvalid, "--variants", folder + ": " + error.message());
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace

Status RegisteredVariants::add(const std::string& what) {
  std::vector<std::string> texts;
  std::error_code ignored;
  if (fs::is_directory(what, ignored)) {
    ATTNLOOM_TRY(const std::vector<std::string> paths, spec_files(what));
    for (const std::string& path : paths) {
      ATTNLOOM_TRY(texts.emplace_back(), read_input(path));
    }
  } else if (what == "shipped") {
    for (const EmbeddedFile& file : shipped_specs()) texts.emplace_back(file.text);
  } else {
    ATTNLOOM_TRY(texts.emplace_back(), read_shipped(what));
  }
  for (const std::string& text : texts) {
    ATTNLOOM_TRY(const ParsedSpec parsed, parse_spec(text));
    known_.insert(identity(parsed.spec.variant));
  }
  return ok_status();
}

bool RegisteredVariants::holds(const Variant& variant) const {
  return any_ || !has_text(variant) || known_.contains(identity(variant));
}

}  // namespace attnloom::cli
